import { setTimeout as sleep } from "node:timers/promises";
import { QueueClosedError } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent, type EventBus, type EventHandler } from "../dist/bus/index.js";
import { IDLE, listenToBus, openBus, storedIn } from "./support/bus.ts";
import { readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";
import { gate } from "./support/worker.ts";

const Created = defineEvent<{ n: number }>("created");
const Done = defineEvent<{ n: number }>("done");
const topology = new BusTopology({ work: [Created], after: [Done] });

/** Two events, and a run in which the first is being handled. */
async function begin(
  handler: EventHandler<{ n: number }>,
  { graceMs = 30_000, maxRetries = 3 } = {},
): Promise<{ bus: EventBus; running: Promise<void>; stop: AbortController; location: string }> {
  const location = tempLocation();
  const bus = openBus({ location, topology, maxRetries });
  await bus.dispatchMany([Created({ n: 1 }), Created({ n: 2 })]);
  bus.subscription("work", { graceMs }).handler(Created, handler);
  const stop = new AbortController();
  const running = bus.run({ signal: stop.signal });
  await until(async () => (await bus.subscription("work").stats()).processing === 1);
  return { bus, running, stop, location };
}

describe.each(["the signal", "close()"] as const)("a run that is stopped by %s", (how) => {
  const stopBy = ({ bus, stop }: { bus: EventBus; stop: AbortController }): void => {
    if (how === "close()") void bus.close();
    else stop.abort();
  };

  test("lets running handlers finish, with what they emit and dispatch, and starts no others", async () => {
    const finish = gate();
    const seen: number[] = [];
    const begun = await begin(async ({ data }, { emit }) => {
      seen.push(data.n);
      await finish.passed;
      emit(Done({ n: 10 }));
      await begun.bus.dispatch(Done({ n: 11 }));
      return Done({ n: 12 });
    });
    const told = listenToBus(begun.bus);
    stopBy(begun);
    finish.open();
    await begun.running;
    expect(seen).toEqual([1]);
    expect(told).toEqual([["event:acked", "work", { n: 1 }]]);
    expect(storedIn(begun.location, "after").map(({ payload }) => payload)).toEqual([{ n: 11 }, { n: 10 }, { n: 12 }]);
    expect(readRow(begun.location, 2)).toMatchObject({ status: 0, attempts: 0 });
  });

  test("aborts a handler at the end of the grace: what it returns then counts", async () => {
    const begun = await begin(async (_, { signal }) => void (await until(() => signal.aborted)), { graceMs: 50 });
    const told = listenToBus(begun.bus);
    stopBy(begun);
    await begun.running;
    expect(told).toEqual([["event:acked", "work", { n: 1 }]]);
  });

  test("has a handler that only throws the abort give its event back, uncounted", async () => {
    const begun = await begin(
      (_, { signal, emit }) => {
        emit(Done({ n: 10 }));
        return sleep(60_000, undefined, { signal });
      },
      { graceMs: 50, maxRetries: 0 },
    );
    const told = listenToBus(begun.bus);
    stopBy(begun);
    await begun.running;
    expect(told).toEqual([]);
    expect(readRow(begun.location, 1)).toMatchObject({ status: 0, attempts: 0 });
    expect(storedIn(begun.location, "after")).toEqual([]);
  });

  test("counts a delivery whose handler throws anything else", async () => {
    const boom = new Error("boom");
    const begun = await begin(
      async (_, { signal }) => {
        await until(() => signal.aborted);
        throw boom;
      },
      { graceMs: 50 },
    );
    const told = listenToBus(begun.bus);
    stopBy(begun);
    await begun.running;
    expect(told).toEqual([["event:retried", "work", { n: 1 }, boom, expect.any(Number)]]);
    expect(readRow(begun.location, 1)).toMatchObject({ status: 0, attempts: 1 });
  });

  test("leaves a handler alone that ignores the abort: its event is delivered again when the lease ends", async () => {
    const finish = gate();
    let late: unknown;
    const begun = await begin(
      async (_, { emit }) => {
        await finish.passed;
        try {
          emit(Done({ n: 10 }));
        } catch (error) {
          late = error;
        }
      },
      { graceMs: 50 },
    );
    stopBy(begun);
    await begun.running;
    expect(readRow(begun.location, 1)).toMatchObject({ status: 1, attempts: 1 });
    finish.open();
    await until(() => late);
    expect(late).toHaveProperty("message", expect.stringContaining("This delivery is over"));
    expect(storedIn(begun.location, "after")).toEqual([]);
  });
});

test("a bus that closes runs nothing more, and when it is closed dispatches nothing more", async () => {
  const finish = gate();
  const { bus, running } = await begin(() => finish.passed);
  const closing = bus.close();
  await expect(bus.run()).rejects.toThrow(QueueClosedError);
  await expect(bus.runSubscription("work")).rejects.toThrow('Event bus "default" is closed');
  expect(bus.close()).toBe(closing);
  finish.open();
  await closing;
  await running;
  await expect(bus.dispatch(Created({ n: 3 }))).rejects.toThrow(QueueClosedError);
});

test("a run whose signal has aborted before does nothing", async () => {
  const location = tempLocation();
  const bus = openBus({ location, topology });
  let calls = 0;
  bus.subscription("work").handler(Created, () => void calls++);
  await bus.dispatch(Created({ n: 1 }));
  await bus.run({ signal: AbortSignal.abort() });
  expect(calls).toBe(0);
  expect(readRow(location, 1)).toMatchObject({ status: 0, attempts: 0 });
  await bus.run(IDLE);
  expect(calls).toBe(1);
});

test("a bus that does not run is closed at once, and may be closed from outside a handler that stops the run", async () => {
  const bus = openBus({ topology });
  const started = performance.now();
  await bus.close();
  expect(performance.now() - started).toBeLessThan(500);
});

test("a handler may stop the run that it is part of", async () => {
  const location = tempLocation();
  const bus = openBus({ location, topology });
  const stop = new AbortController();
  await bus.dispatchMany([Created({ n: 1 }), Created({ n: 2 })]);
  bus.subscription("work").handler(Created, () => stop.abort());
  await bus.run({ signal: stop.signal });
  expect(await bus.subscription("work").stats()).toMatchObject({ acked: 1, ready: 1 });
});
