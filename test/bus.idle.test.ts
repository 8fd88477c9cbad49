import { setTimeout as sleep } from "node:timers/promises";
import { RetryPolicy } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent } from "../dist/bus/index.js";
import { listenToBus, openBus, run } from "./support/bus.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";
import { gate } from "./support/worker.ts";

const [First, Second, Third] = ["first", "second", "third"].map((type) => defineEvent<{ n: number }>(type)) as [
  Kind,
  Kind,
  Kind,
];
type Kind = ReturnType<typeof defineEvent<{ n: number }>>;
const topology = new BusTopology({ a: [First], b: [Second], c: [Third] });

describe("a run that is to end when it is idle", () => {
  test("ends soon after nothing was left to do", async () => {
    const bus = openBus({ topology });
    for (const name of ["a", "b", "c"]) bus.subscription(name, { concurrency: 3 }).handler("*", () => {});
    await bus.dispatch(First({ n: 1 })); // opens the database
    const started = performance.now();
    await bus.run({ idleTimeoutMs: 100 });
    const took = performance.now() - started;
    expect(took).toBeGreaterThan(95);
    expect(took).toBeLessThan(3_000);
    expect(await bus.subscription("a").stats()).toMatchObject({ acked: 1 });
  });

  test("goes on while one of the subscriptions handles something", async () => {
    const bus = openBus({ topology });
    const finish = gate();
    bus.subscription("a").handler(First, () => finish.passed);
    bus.subscription("b").handler(Second, () => {});
    await bus.dispatch(First({ n: 1 }));
    let isOver = false;
    const running = bus.run({ idleTimeoutMs: 30 }).then(() => {
      isOver = true;
    });
    const later = performance.now() + 300;
    await until(() => performance.now() > later);
    expect(isOver).toBe(false);
    await bus.dispatch(Second({ n: 2 }));
    await until(async () => (await bus.subscription("b").stats()).acked === 1);
    finish.open();
    await running;
  });

  test.each([1, 30])(
    "after %d ms sees a chain of events over three subscriptions to its end",
    async (idleTimeoutMs) => {
      const location = tempLocation();
      const bus = openBus({ location, topology });
      const told = listenToBus(bus);
      bus.subscription("c").handler(Third, () => {});
      bus.subscription("b").handler(Second, async ({ data }, { emit }) => {
        await sleep(60);
        emit(Third(data));
      });
      bus.subscription("a").handler(First, async ({ data }) => {
        await sleep(60);
        return Second(data);
      });
      for (let n = 1; n <= 5; n++) {
        await bus.dispatch(First({ n }));
        await bus.run({ idleTimeoutMs });
        expect(told.splice(0)).toEqual(["a", "b", "c"].map((name) => ["event:acked", name, { n }]));
      }
    },
  );

  test("does not wait for an event whose next delivery is a matter of time", async () => {
    const bus = openBus({ topology });
    bus.subscription("a", { retry: RetryPolicy.fixed(60_000) }).handler(First, () => {
      throw new Error("later");
    });
    await bus.dispatch(First({ n: 1 }));
    await bus.run({ idleTimeoutMs: 50 });
    expect(await bus.subscription("a").stats()).toMatchObject({ ready: 1 });
  });

  test("does handle one whose time comes before", async () => {
    const bus = openBus({ topology });
    bus.subscription("a", { retry: RetryPolicy.fixed(50) }).handler(First, (_, { attempt }) => {
      if (attempt === 1) throw new Error("soon");
    });
    await bus.dispatch(First({ n: 1 }));
    await bus.run({ idleTimeoutMs: 1_000 });
    expect(await bus.subscription("a").stats()).toMatchObject({ acked: 1 });
  });

  test("does not wait for what another process handles", async () => {
    const location = tempLocation();
    const finish = gate();
    const [one, other] = [openBus({ location, topology }), openBus({ location, topology })];
    one.subscription("a").handler(First, () => finish.passed);
    other.subscription("a").handler(First, () => {});
    await one.dispatch(First({ n: 1 }));
    const running = run(one);
    await until(async () => (await one.subscription("a").stats()).processing === 1);
    await other.run({ idleTimeoutMs: 50 });
    expect(await one.subscription("a").stats()).toMatchObject({ processing: 1 });
    finish.open();
    await one.close();
    await running;
  });

  test("may be one of a single subscription", async () => {
    const bus = openBus({ topology });
    for (const name of ["a", "b"]) bus.subscription(name).handler("*", () => {});
    await bus.dispatch(First({ n: 1 }));
    await bus.runSubscription("a", { idleTimeoutMs: 50 });
    expect(await bus.subscription("a").stats()).toMatchObject({ acked: 1 });
  });

  test.each([0, -1, 1.5, "100", Number.NaN, true])(
    "waits for a whole number of milliseconds, not %j",
    async (value) => {
      await expect(openBus({ topology }).run({ idleTimeoutMs: value as number })).rejects.toThrow("`idleTimeoutMs`");
    },
  );
});
