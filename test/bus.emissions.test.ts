import { DeduplicationConflictError, InvalidEventError, NoSubscribersError, RetryPolicy } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent, type Event, type EventHandler } from "../dist/bus/index.js";
import { type BusTold, edgesOf, IDLE, listenToBus, openBus, schema, storedIn } from "./support/bus.ts";
import { select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";

const Order = defineEvent<{ n: number }>("order");
const Paid = defineEvent<{ n: number }>("paid");
const Billed = defineEvent<{ n: number; cents?: number }>("billed", undefined, { identity: ["n"] });
const Lonely = defineEvent<{ n: number }>("lonely");
const topology = new BusTopology({ orders: [Order], mail: [Paid], books: [Paid, Billed] });

const OTHER = "11111111-2222-3333-4444-555555555555";

/** Has one order handled; resolves to what the bus told, and where to look. */
async function handle(
  handler: EventHandler<{ n: number }>,
  options: { location?: string; requireSubscribers?: boolean; topology?: BusTopology } = {},
): Promise<{ location: string; told: BusTold; order: Event }> {
  const location = options.location ?? tempLocation();
  const bus = openBus({ topology, ...options, location, maxRetries: 1 });
  const told = listenToBus(bus);
  const order = Order({ n: 1 });
  await bus.dispatch(order);
  bus.subscription("orders", { retry: RetryPolicy.immediate() }).handler(Order, handler);
  await bus.run(IDLE);
  await bus.close();
  return { location, told, order };
}

const failureOf = (location: string): unknown =>
  select(
    location,
    "SELECT attempts, failure_reason AS reason, failure_category AS category FROM messages WHERE status = 3",
  );

const UNSUPPORTED = "Expected `what the handler returned` to be nothing, an event, or an array of events, got";
const ACKED = [["event:acked", "orders", { n: 1 }]];

describe("what a handler returns", () => {
  test("goes to all its subscriptions with the acknowledgement, as a child of the event", async () => {
    const paid = Paid({ n: 2 });
    const { location, told, order } = await handle(() => paid);
    expect(told).toEqual(ACKED);
    for (const subscription of ["mail", "books"]) {
      expect(storedIn(location, subscription)).toMatchObject([
        { event_id: paid.id, correlation_id: order.id, causation_id: order.id, payload: { n: 2 } },
      ]);
    }
    expect(edgesOf(location)).toEqual([
      [{ n: 1 }, { n: 2 }],
      [{ n: 1 }, { n: 2 }],
    ]);
    // The event itself is as its author made it.
    expect([paid.correlationId, paid.causationId]).toEqual([paid.id, undefined]);
  });

  test.each<[string, EventHandler<{ n: number }>, number[]]>([
    ["nothing", () => {}, []],
    ["null", () => null, []],
    ["no events", () => [], []],
    ["one event", () => Paid({ n: 2 }), [2]],
    ["a promise of one", async () => Paid({ n: 2 }), [2]],
    ["several", () => [Paid({ n: 2 }), Paid({ n: 3 })], [2, 3]],
    ["what it emitted, too", (_, { emit }) => [emit(Paid({ n: 2 })), Paid({ n: 3 })].slice(1) as Event[], [2, 3]],
  ])("may be %s", async (_, handler, expected) => {
    const { location, told } = await handle(handler);
    expect(told).toEqual(ACKED);
    expect(storedIn(location, "mail").map(({ payload }) => (payload as { n: number }).n)).toEqual(expected);
  });

  test("may be emitted as well: it is stored once", async () => {
    const { location, told } = await handle((_, { emit }) => {
      const paid = Paid({ n: 2 });
      emit(paid);
      return [paid, paid];
    });
    expect(told).toEqual(ACKED);
    expect(storedIn(location, "mail")).toHaveLength(1);
  });

  test("keeps the lineage that its author gave it", async () => {
    const { location, order } = await handle((event) => [
      Paid.from(event, { n: 2 }),
      Paid({ n: 3 }, { correlationId: OTHER }),
      Paid({ n: 4 }, { causationId: OTHER }),
    ]);
    expect(storedIn(location, "mail").map((one) => [one["correlation_id"], one["causation_id"]])).toEqual([
      [order.id, order.id],
      [OTHER, order.id],
      [order.id, OTHER],
    ]);
  });

  test("may be known already: it is linked, and not stored again", async () => {
    const location = tempLocation();
    const known = Paid({ n: 2 });
    await openBus({ location, topology }).dispatchMany([known, Billed({ n: 3 })]);
    const { told } = await handle(() => [known, Billed({ n: 3 })], { location });
    expect(told).toEqual(ACKED);
    expect(storedIn(location, "books")).toHaveLength(2);
    expect(edgesOf(location)).toHaveLength(3);
  });

  test("may be the event that it handles, which its subscription knows", async () => {
    const { location, told } = await handle((event) => event);
    expect(told).toEqual(ACKED);
    expect(storedIn(location, "orders")).toHaveLength(1);
  });

  test.each<[unknown, string]>([
    ["text", `${UNSUPPORTED} \`"text"\` (string)`],
    [5, `${UNSUPPORTED} \`5\` (number)`],
    [{ n: 1 }, `${UNSUPPORTED} \`Object\` (object)`],
    [[Paid({ n: 2 }), 5], "Expected `item 1 of what the handler returned` to be an event, got `5` (number)"],
    [Paid, `${UNSUPPORTED} a function`],
  ])("can be nothing else: %j is a dead letter at once", async (value, message) => {
    const { location, told } = await handle((_, { emit }) => {
      emit(Paid({ n: 2 }));
      return value as undefined;
    });
    const error = expect.objectContaining({ message });
    expect(told).toEqual([["event:failed", "orders", { n: 1 }, error, "permanent_handler_error"]]);
    expect(failureOf(location)).toEqual([{ attempts: 1, reason: "permanent_handler_error", category: null }]);
    expect(storedIn(location, "mail")).toEqual([]);
  });

  test("comes to nothing if the handler threw after it emitted", async () => {
    const { location } = await handle((_, { emit }) => {
      emit(Paid({ n: 2 }));
      throw new Error("no");
    });
    expect(storedIn(location, "mail")).toEqual([]);
    expect(failureOf(location)).toMatchObject([{ attempts: 2, reason: "retries_exhausted" }]);
  });
});

describe("an event that cannot be emitted makes the delivery a dead letter, and nothing of it is stored:", () => {
  test("one that conflicts with what is stored", async () => {
    const location = tempLocation();
    await openBus({ location, topology }).dispatch(Billed({ n: 3 }));
    const { told } = await handle(() => [Paid({ n: 2 }), Billed({ n: 3, cents: 5 })], { location });
    const error = expect.any(DeduplicationConflictError);
    expect(told).toEqual([["event:failed", "orders", { n: 1 }, error, "permanent_handler_error"]]);
    const category = "deduplication_conflict";
    expect(failureOf(location)).toEqual([{ attempts: 1, reason: "permanent_handler_error", category }]);
    expect(storedIn(location, "mail")).toEqual([]);
    expect(edgesOf(location)).toEqual([]);
  });

  test("one that nobody gets", async () => {
    const { location, told } = await handle(() => [Paid({ n: 2 }), Lonely({ n: 3 })]);
    const error = expect.any(NoSubscribersError);
    expect(told).toEqual([["event:failed", "orders", { n: 1 }, error, "permanent_handler_error"]]);
    expect(failureOf(location)).toEqual([{ attempts: 1, reason: "permanent_handler_error", category: null }]);
    expect(storedIn(location, "mail")).toEqual([]);
  });

  test("one that does not fit its asynchronous schema", async () => {
    const Checked = defineEvent(
      "checked",
      schema(async (_: object) => Promise.reject(new Error("never fits"))),
    );
    const { location, told } = await handle(() => [Paid({ n: 2 }), Checked({})], {
      topology: new BusTopology({ orders: [Order], mail: [Paid, Checked] }),
    });
    const error = expect.any(InvalidEventError);
    expect(told).toEqual([["event:failed", "orders", { n: 1 }, error, "permanent_handler_error"]]);
    expect(failureOf(location)).toMatchObject([{ attempts: 1, category: "invalid_event" }]);
    expect(storedIn(location, "mail")).toEqual([]);
  });
});

test("an event whose asynchronous schema throws is tried again with the delivery: another time it may not", async () => {
  let calls = 0;
  const validate = async (value: unknown) => {
    if (++calls < 2) throw new Error("no connection");
    return { value };
  };
  const Checked = defineEvent("checked", { "~standard": { version: 1, vendor: "test", validate } });
  const { location, told } = await handle(() => Checked({}), {
    topology: new BusTopology({ orders: [Order], mail: [Checked] }),
  });
  expect(told).toEqual([["event:retried", "orders", { n: 1 }, new Error("no connection"), 0], ...ACKED]);
  expect(storedIn(location, "mail")).toHaveLength(1);
});

test("an event that nobody gets is dropped where that is allowed", async () => {
  const { location, told } = await handle(() => [Paid({ n: 2 }), Lonely({ n: 3 })], { requireSubscribers: false });
  expect(told).toEqual(ACKED);
  expect(storedIn(location, "mail")).toHaveLength(1);
});

describe("emit", () => {
  test("takes events only", async () => {
    const refusals: unknown[] = [];
    await handle((_, { emit }) => {
      for (const value of [5, {}, Paid]) {
        try {
          emit(value as never);
        } catch (error) {
          refusals.push((error as Error).message);
        }
      }
    });
    expect(refusals).toEqual(Array(3).fill(expect.stringContaining("Expected `event` to be an event made by its def")));
  });

  test("throws once the handler has settled", async () => {
    let late: ((event: Event) => void) | undefined;
    const { location } = await handle((_, { emit }) => {
      late = emit;
    });
    expect(() => late?.(Paid({ n: 2 }))).toThrow("This delivery is over");
    expect(storedIn(location, "mail")).toEqual([]);
  });

  test("throws in a handler that ran out of time and was given up", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology, maxRetries: 0 });
    const told = listenToBus(bus);
    let outcome: unknown;
    bus.subscription("orders", { timeoutMs: 50, graceMs: 50 }).handler(Order, async (_, { emit }) => {
      await until(() => told.length > 0);
      try {
        emit(Paid({ n: 2 }));
      } catch (error) {
        outcome = error;
      }
    });
    await bus.dispatch(Order({ n: 1 }));
    await bus.run(IDLE);
    expect(told).toMatchObject([["event:failed", "orders", { n: 1 }, { name: "TimeoutError" }, "handler_timeout"]]);
    await until(() => outcome);
    expect(outcome).toMatchObject({ message: expect.stringContaining("This delivery is over") });
    expect(storedIn(location, "mail")).toEqual([]);
  });

  test("is not what dispatch is: that commits by itself", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology, maxRetries: 0 });
    bus.subscription("orders").handler(Order, async () => {
      await bus.dispatch(Paid({ n: 2 }));
      throw new Error("no");
    });
    await bus.dispatch(Order({ n: 1 }));
    await bus.run(IDLE);
    expect(storedIn(location, "mail")).toMatchObject([{ causation_id: null }]);
  });
});
