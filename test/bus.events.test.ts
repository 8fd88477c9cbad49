import { RetryPolicy } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent } from "../dist/bus/index.js";
import { IDLE, listenToBus, openBus } from "./support/bus.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";
import { collectWarnings } from "./support/worker.ts";

const Created = defineEvent<{ n: number }>("created");
const topology = new BusTopology({ work: [Created], other: [Created] });

describe("a listener of a bus", () => {
  test("hears of all subscriptions, until it is taken off", async () => {
    const bus = openBus({ topology });
    const heard: unknown[] = [];
    const off = bus.on("event:acked", ({ event, subscription }) => heard.push([subscription, event.id]));
    for (const name of ["work", "other"]) bus.subscription(name).handler(Created, () => {});
    const event = Created({ n: 1 });
    await bus.dispatch(event);
    await bus.run(IDLE);
    expect(heard.sort()).toEqual(["other", "work"].map((name) => [name, event.id]));
    off();
    await bus.dispatch(Created({ n: 2 }));
    await bus.run(IDLE);
    expect(heard).toHaveLength(2);
  });

  test("that throws, or rejects, breaks nothing: it becomes a warning", async () => {
    const warnings = collectWarnings();
    const bus = openBus({ topology });
    bus.on("event:acked", () => {
      throw new TypeError("in the listener");
    });
    bus.on("event:acked", () => Promise.reject(null));
    const told = listenToBus(bus);
    bus.subscription("work").handler(Created, () => {});
    await bus.dispatchMany([Created({ n: 1 }), Created({ n: 2 })]);
    await bus.run(IDLE);
    expect(told).toEqual([1, 2].map((n) => ["event:acked", "work", { n }]));
    await until(() => warnings.length === 4);
    expect(warnings[0]).toMatchObject({
      code: "LOCALQUEUE_LISTENER_FAILED",
      message: 'A listener of "event:acked" failed: TypeError: in the listener',
    });
  });

  test.each([
    ["event:aked", () => {}, "Unknown event `event:aked`; did you mean `event:acked`?"],
    ["job:acked", () => {}, "Unknown event `job:acked`"],
    ["error", 5, "Expected `listener` to be a function, got `5`"],
  ])("listens to what there is: %s", (name, listener, message) => {
    const bus = openBus({ topology });
    expect(() => bus.on(name as "error", listener as () => void)).toThrow(message);
  });

  test("hears of a retry function that does not work; the default policy helps out", async () => {
    const bus = openBus({ topology });
    const told = listenToBus(bus);
    const boom = new Error("boom");
    bus.subscription("work", { retry: () => Number.NaN }).handler(Created, () => Promise.reject(boom));
    await bus.dispatch(Created({ n: 1 }));
    await bus.run(IDLE);
    expect(told).toEqual([
      ["error", "work", expect.any(RangeError)],
      ["event:retried", "work", { n: 1 }, boom, expect.any(Number)],
    ]);
    expect(told[1]?.[4]).toBeGreaterThanOrEqual(1_000);
  });
});

describe("a dead letter that nobody hears of", () => {
  async function fail(listen: boolean): Promise<unknown[]> {
    const warnings = collectWarnings();
    const bus = openBus({ location: tempLocation(), topology, maxRetries: 0 });
    if (listen) bus.on("event:failed", () => {});
    for (const name of ["work", "other"]) {
      bus
        .subscription(name, { retry: RetryPolicy.immediate() })
        .handler(Created, () => Promise.reject(new Error("no")));
    }
    await bus.dispatchMany([Created({ n: 1 }), Created({ n: 2 }), Created({ n: 3 })]);
    await bus.run(IDLE);
    await new Promise(setImmediate);
    return warnings.map(({ message }) => message);
  }

  test("gives one warning for each subscription", async () => {
    const nobody = 'and nobody listens for "event:failed" or "error" of its bus';
    expect((await fail(false)).sort()).toEqual(
      ["other", "work"].map((name) =>
        expect.stringMatching(
          new RegExp(
            `^Delivery \\d of subscription "${name}" became a dead letter \\(retries_exhausted\\), ${nobody}$`,
          ),
        ),
      ),
    );
  });

  test("gives none if somebody listens", async () => {
    expect(await fail(true)).toEqual([]);
  });
});
