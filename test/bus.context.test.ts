import { Reject, Retry, RetryPolicy } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent, type Event, type EventContext, type EventHandler } from "../dist/bus/index.js";
import { type BusTold, IDLE, listenToBus, openBus, storedIn } from "./support/bus.ts";
import { readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";

const Created = defineEvent<{ n: number }>("created");
const Done = defineEvent<{ n: number }>("done");
const topology = new BusTopology({ work: [Created], after: [Done] });

interface Handled {
  readonly told: BusTold;
  readonly row: Record<string, unknown>;
  readonly location: string;
}

/** Has one event handled, of which two deliveries are allowed. */
async function handle<Context extends object>(
  createContext: (context: EventContext, event: Event) => Context | PromiseLike<Context>,
  handler: EventHandler<{ n: number }, Context> = () => {},
  retry: RetryPolicy = RetryPolicy.immediate(),
): Promise<Handled> {
  const location = tempLocation();
  const bus = openBus<Context>({ location, topology, maxRetries: 1, createContext });
  const told = listenToBus(bus);
  const { messageIds } = await bus.dispatch(Created({ n: 1 }));
  bus.subscription("work", { retry }).handler(Created, handler);
  await bus.run(IDLE);
  await bus.close();
  return { told, row: readRow(location, messageIds[0] as number), location };
}

describe("createContext", () => {
  test("adds to the context of each delivery, and is given what handlers are given", async () => {
    const given: unknown[] = [];
    const seen: unknown[] = [];
    const { told } = await handle(
      ({ attempt, subscription, eventId, signal }, { id, type }) => {
        given.push([attempt, subscription, eventId === id, signal.aborted, type]);
        return { database: `connection ${attempt}` };
      },
      (_, { database, attempt }) => {
        seen.push([database, attempt]);
        if (attempt === 1) throw new Error("again");
      },
    );
    expect(given).toEqual([1, 2].map((attempt) => [attempt, "work", true, false, "created"]));
    expect(seen).toEqual([
      ["connection 1", 1],
      ["connection 2", 2],
    ]);
    expect(told.map(([name]) => name)).toEqual(["event:retried", "event:acked"]);
  });

  test("may be asynchronous, and may return an object without a prototype, with symbols and functions", async () => {
    const key = Symbol("key");
    let seen: unknown;
    await handle(
      async () => Object.assign(Object.create(null), { [key]: 1, double: (n: number) => 2 * n }) as { double: never },
      (_, context) => {
        seen = [Reflect.get(context, key), (context as { double: (n: number) => number }).double(2)];
      },
    );
    expect(seen).toEqual([1, 4]);
  });

  test("may use the names that a context does not promise", async () => {
    let seen: unknown;
    const { told } = await handle(
      () => ({ end: "the end", extend: 1, toString: () => "text" }),
      (_, context) => {
        seen = [context.end, context.extend, `${context}`];
        return Done({ n: 2 });
      },
    );
    expect(told).toEqual([["event:acked", "work", { n: 1 }]]);
    expect(seen).toEqual(["the end", 1, "text"]);
  });

  test("may emit, which counts as emitted by the handler", async () => {
    const { location } = await handle(({ emit }) => {
      emit(Done({ n: 2 }));
      return {};
    });
    expect(storedIn(location, "after")).toMatchObject([{ payload: { n: 2 } }]);
  });

  test.each<[string, () => object | Promise<object>]>([
    ["throws", () => thrower(new Error("no database"))],
    ["rejects", () => Promise.reject(new Error("no database"))],
  ])("that %s has the event delivered again; the handler is not called", async (_, createContext) => {
    let calls = 0;
    const { told, row } = await handle(createContext, () => void calls++);
    expect(told.map(([name]) => name)).toEqual(["event:retried", "event:failed"]);
    expect(row).toMatchObject({ failure_reason: "retries_exhausted", last_error: "Error: no database" });
    expect(calls).toBe(0);
  });

  test("that throws Retry or Reject is obeyed, as a handler is", async () => {
    const retried = await handle(() => thrower(new Retry({ delayMs: 90_000 })));
    expect(retried.told).toMatchObject([["event:retried", "work", { n: 1 }, {}, 90_000]]);
    const rejected = await handle(async () => thrower(new Reject("no", { category: "tenant" })));
    expect(rejected.row).toMatchObject({ failure_reason: "rejected", failure_category: "tenant", attempts: 1 });
  });

  test.each([
    [undefined, "got `undefined`"],
    [null, "got `null`"],
    [5, "got `5` (number)"],
    [[], "got `Array` (object)"],
    [new Map(), "got `Map` (object)"],
    [() => {}, "got a function"],
  ])("that returns no plain object, but %o, fails the delivery", async (made, got) => {
    const { told, row } = await handle(() => made as object);
    expect(told.map(([name]) => name)).toEqual(["event:retried", "event:failed"]);
    expect(row["last_error"]).toBe(
      `TypeError: Expected \`what \`createContext\` returned\` to be a plain object, ${got}`,
    );
  });

  test.each(["signal", "attempt", "eventId", "subscription", "emit"])(
    "must not replace `%s`, which every context has",
    async (name) => {
      const { row } = await handle(() => ({ [name]: 1 }));
      expect(row["last_error"]).toBe(
        `TypeError: \`createContext\` must not return a property \`${name}\`: every context has one`,
      );
    },
  );
});

function thrower(error: unknown): never {
  throw error;
}
