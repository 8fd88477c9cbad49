import { renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { InvalidEventError, Reject, Retry, RetryPolicy, type WorkerOptions } from "localqueue";
import { describe, expect, test } from "vitest";
import {
  BusTopology,
  defineEvent,
  type EventContext,
  type EventHandler,
  type StandardSchema,
} from "../dist/bus/index.js";
import { type BusTold, IDLE, listenToBus, openBus, run, storedIn } from "./support/bus.ts";
import { lacks } from "./support/capabilities.ts";
import { readRow, refuse, steal } from "./support/database.ts";
import { faultsOf } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";

const Created = defineEvent<{ n: number }>("created");
const Done = defineEvent<{ n: number }>("done");
const topology = new BusTopology({ work: [Created], after: [Done] });

class Permanent extends Error {}
const boom = new Error("boom");

interface Handled {
  readonly told: BusTold;
  readonly row: Record<string, unknown>;
  readonly location: string;
}

/** Has one event handled until nothing is left to do for now; resolves to what the bus told, and the delivery's row. */
async function handle(
  handler: EventHandler<{ n: number }>,
  options: WorkerOptions & { maxRetries?: number; createContext?: (context: EventContext) => object } = {},
): Promise<Handled> {
  const { maxRetries = 1, createContext, ...workerOptions } = options;
  const location = tempLocation();
  const bus = openBus({ location, topology, maxRetries, createContext });
  const told = listenToBus(bus);
  const { messageIds } = await bus.dispatch(Created({ n: 1 }));
  bus.subscription("work", workerOptions).handler(Created, handler);
  await bus.run(IDLE);
  await bus.close();
  return { told, row: readRow(location, messageIds[0] as number), location };
}

const immediate = { retry: RetryPolicy.immediate() };

describe("a handler that throws", () => {
  test("has the event delivered again, until its budget is used up", async () => {
    const { told, row } = await handle(() => Promise.reject(boom), { ...immediate, maxRetries: 2 });
    const retried = ["event:retried", "work", { n: 1 }, boom, 0];
    expect(told).toEqual([retried, retried, ["event:failed", "work", { n: 1 }, boom, "retries_exhausted"]]);
    expect(row).toMatchObject({
      status: 3,
      attempts: 3,
      failure_reason: "retries_exhausted",
      last_error: "Error: boom",
    });
  });

  test("has it wait as the policy of the subscription says", async () => {
    const before = Date.now();
    const { told, row } = await handle(() => Promise.reject(boom), { retry: RetryPolicy.fixed(10_000) });
    expect(told).toEqual([["event:retried", "work", { n: 1 }, boom, 10_000]]);
    expect(row).toMatchObject({ status: 0, attempts: 1, max_attempts: 2 });
    expect(row["available_at"]).toBeGreaterThanOrEqual(before + 10_000);
    expect(row["available_at"]).toBeLessThanOrEqual(Date.now() + 10_000);
  });

  test("may have fewer or more deliveries than the event was dispatched with", async () => {
    const once = await handle(() => Promise.reject(boom), { retry: RetryPolicy.immediate({ maxAttempts: 1 }) });
    expect(once.row).toMatchObject({ status: 3, attempts: 1 });
    const thrice = await handle(() => Promise.reject(boom), { retry: RetryPolicy.immediate({ maxAttempts: 3 }) });
    expect(thrice.row).toMatchObject({ status: 3, attempts: 3 });
  });

  test("leaves its slot to the next event", async () => {
    const bus = openBus({ topology });
    const seen: number[] = [];
    await bus.dispatchMany([Created({ n: 1 }), Created({ n: 2 })]);
    bus.subscription("work", { retry: RetryPolicy.fixed(60_000) }).handler(Created, ({ data }) => {
      seen.push(data.n);
      if (data.n === 1) throw boom;
    });
    await bus.run(IDLE);
    expect(seen).toEqual([1, 2]);
  });
});

describe("the outcome of a delivery is", () => {
  test("a dead letter at once after Reject, with its category, whatever else holds", async () => {
    class Refusal extends Reject {}
    const error = new Refusal("no such user", { category: "users" });
    const { told, row } = await handle(() => Promise.reject(error), { permanentErrors: [Error], ...immediate });
    expect(told).toEqual([["event:failed", "work", { n: 1 }, error, "rejected"]]);
    expect(row).toMatchObject({ attempts: 1, failure_reason: "rejected", failure_category: "users" });
    expect(row["last_error"]).toContain("no such user");
  });

  test("a dead letter at once after a permanent error", async () => {
    const error = new Permanent("no");
    const { told, row } = await handle(() => Promise.reject(error), { permanentErrors: [Permanent] });
    expect(told).toEqual([["event:failed", "work", { n: 1 }, error, "permanent_handler_error"]]);
    expect(row).toMatchObject({ attempts: 1, failure_reason: "permanent_handler_error" });
  });

  test("a retry after Retry, with the delay that it asks for in place of the policy's", async () => {
    const later = new Retry({ delayMs: 90_000, reason: "not yet" });
    const { told, row } = await handle(() => Promise.reject(later), { retry: RetryPolicy.fixed(5) });
    expect(told).toEqual([["event:retried", "work", { n: 1 }, later, 90_000]]);
    expect(row["last_error"]).toContain("not yet");
    const now = new Retry({ delayMs: 0 });
    const again = await handle((_, { attempt }) => (attempt === 1 ? Promise.reject(now) : undefined), {
      retry: RetryPolicy.fixed(60_000),
    });
    expect(again.told.map(([name]) => name)).toEqual(["event:retried", "event:acked"]);
  });

  test("a dead letter after a Retry on the last delivery", async () => {
    const { row } = await handle(() => Promise.reject(new Retry({ reason: "not yet" })), {
      ...immediate,
      maxRetries: 0,
    });
    expect(row).toMatchObject({ status: 3, failure_reason: "retries_exhausted" });
  });

  test.each<[string, EventHandler<{ n: number }>]>([
    ["returned", () => Done({ n: 2 })],
    ["threw", () => Promise.reject(boom)],
    ["threw a permanent error", () => Promise.reject(new Permanent())],
    ["rejected the event", () => Promise.reject(new Reject("no"))],
  ])("a time-out after a time-out, even if the handler %s then", async (_, late) => {
    const { told, row, location } = await handle(
      async (event, context) => {
        await until(() => context.signal.aborted);
        expect(context.signal.reason).toMatchObject({ name: "TimeoutError" });
        return late(event, context);
      },
      { timeoutMs: 60, permanentErrors: [Permanent], maxRetries: 0 },
    );
    const error = expect.objectContaining({ name: "TimeoutError", message: "The handler ran longer than 60 ms" });
    expect(told).toEqual([["event:failed", "work", { n: 1 }, error, "handler_timeout"]]);
    expect(row).toMatchObject({ failure_reason: "handler_timeout", attempts: 1 });
    expect(storedIn(location, "after")).toEqual([]);
  });

  test("an acknowledgement if the second delivery is in time", async () => {
    const { told } = await handle(
      async (_, { signal, attempt }) => {
        if (attempt === 1) await until(() => signal.aborted);
      },
      { timeoutMs: 60, ...immediate },
    );
    expect(told.map(([name]) => name)).toEqual(["event:retried", "event:acked"]);
  });

  test("an ordinary failure after a time-out of the handler's own", async () => {
    class TimeoutError extends Error {}
    const { row } = await handle(() => Promise.reject(new TimeoutError("of mine")), {
      timeoutMs: 5_000,
      maxRetries: 0,
    });
    expect(row).toMatchObject({ failure_reason: "retries_exhausted" });
  });

  test("nothing once the lease is lost, whatever the handler does then, and however late", async () => {
    for (const late of [() => Done({ n: 2 }), () => Promise.reject(new Reject("no"))]) {
      const location = tempLocation();
      const bus = openBus({ location, topology, leaseMs: 300 });
      const told = listenToBus(bus);
      const { messageIds } = await bus.dispatch(Created({ n: 1 }));
      const id = messageIds[0] as number;
      bus.subscription("work", { heartbeatMs: 30, timeoutMs: 200 }).handler(Created, async (_, { signal }) => {
        steal(location, id);
        await until(() => signal.aborted);
        return late();
      });
      const running = run(bus);
      await until(() => told.length > 0);
      await bus.close();
      await running;
      expect(told).toEqual([["lease:lost", "work", { n: 1 }]]);
      expect(readRow(location, id)).toMatchObject({ status: 1, last_error: null });
      expect(storedIn(location, "after")).toEqual([]);
    }
  });
});

describe("a schema that throws", () => {
  const broken = (until: number): StandardSchema<{ n: number }> => {
    let calls = 0;
    const validate = (value: unknown) => {
      if (++calls > 1 && calls <= until) throw new Error("no connection");
      return { value: value as { n: number } };
    };
    return { "~standard": { version: 1, vendor: "test", validate } };
  };

  test("at a delivery is an ordinary failure: the next one may succeed", async () => {
    const Flaky = defineEvent("flaky", broken(2));
    const bus = openBus({ topology: new BusTopology({ work: [Flaky] }) });
    const told = listenToBus(bus);
    bus.subscription("work", immediate).handler(Flaky, () => {});
    await bus.dispatch(Flaky({ n: 1 }));
    await bus.run(IDLE);
    expect(told).toEqual([
      ["error", "work", expect.objectContaining({ message: "The schema of the event threw" })],
      ["event:acked", "work", { n: 1 }],
    ]);
  });

  test("each time makes it a dead letter in the end, which is told", async () => {
    const Broken = defineEvent("broken", broken(Number.POSITIVE_INFINITY));
    const location = tempLocation();
    const bus = openBus({ location, topology: new BusTopology({ work: [Broken] }), maxRetries: 1 });
    const told = listenToBus(bus);
    bus.subscription("work", immediate).handler(Broken, () => {});
    const { messageIds } = await bus.dispatch(Broken({ n: 1 }));
    await bus.run(IDLE);
    expect(readRow(location, messageIds[0] as number)).toMatchObject({
      attempts: 2,
      failure_reason: "retries_exhausted",
    });
    expect(told).toHaveLength(2);
    expect(told[1]?.[2]).toBeInstanceOf(InvalidEventError);
    expect(told[1]?.[2]).toHaveProperty(
      "message",
      `Delivery ${messageIds[0]} of subscription "work" became a dead letter (retries_exhausted). InvalidEventError: The schema of the event threw`,
    );
  });
});

describe("a fault of the storage", () => {
  test("while an outcome is recorded is waited out, and told; the handler is not run again", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    const told = listenToBus(bus);
    let mend = () => {};
    let calls = 0;
    bus.subscription("work").handler(Created, () => {
      calls++;
      mend = refuse(location, 2);
      return Done({ n: 2 });
    });
    await bus.dispatch(Created({ n: 1 }));
    const running = run(bus, IDLE);
    await until(() => told.length > 0);
    mend();
    await running;
    expect(told.map(([name, subscription]) => [name, subscription])).toEqual([
      ["error", "work"],
      ["event:acked", "work"],
    ]);
    expect(calls).toBe(1);
    expect(storedIn(location, "after")).toHaveLength(1);
    expect(faultsOf(location)).toEqual([]);
  });

  test("is no idleness: what there is to do is done when it is over", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    const told = listenToBus(bus);
    await bus.dispatch(Created({ n: 1 }));
    const mend = refuse(location, 1);
    bus.subscription("work").handler(Created, () => {});
    bus.subscription("after").handler(Done, () => {});
    let isOver = false;
    const running = bus.run({ idleTimeoutMs: 20 }).then(() => {
      isOver = true;
    });
    await until(() => told.filter(([name]) => name === "error").length >= 2);
    expect(isOver).toBe(false);
    mend();
    await running;
    expect(told.at(-1)).toEqual(["event:acked", "work", { n: 1 }]);
  });

  test.skipIf(lacks("files"))("that is for good ends the run of all subscriptions", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    listenToBus(bus);
    for (const name of ["work", "after"]) bus.subscription(name).handler("*", () => {});
    await bus.dispatch(Created({ n: 1 }));
    const running = run(bus);
    await until(async () => (await bus.subscription("work").stats()).acked === 1);
    renameSync(path.join(location, "localqueue.db"), path.join(location, "elsewhere.db"));
    writeFileSync(path.join(location, "localqueue.db"), "");
    await expect(running).rejects.toMatchObject({ name: "StorageError", code: "FILE_REPLACED" });
  });
});
