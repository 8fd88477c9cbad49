import { DeduplicationConflictError, InvalidEventError, NoSubscribersError, QueueClosedError } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent, EventBus } from "../dist/bus/index.js";
import { openBus, schema, storedIn } from "./support/bus.ts";
import { lockDatabase, readRow } from "./support/database.ts";
import { hostile } from "./support/hostile.ts";
import { select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";

const UserCreated = defineEvent<{ userId: string; name?: string }>("user.created");
const Paid = defineEvent<{ order: string; cents?: number | null }>("order.paid", undefined, { identity: ["order"] });
const topology = new BusTopology({ email: [UserCreated], billing: [Paid], audit: ["*"] });

describe("an event that is dispatched", () => {
  test("is stored once for each of its subscriptions; the receipt says where", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology, name: "app" });
    const event = UserCreated({ userId: "7" });
    const receipt = await bus.dispatch(event);
    expect(receipt).toEqual({
      eventId: event.id,
      eventType: "user.created",
      subscriptions: ["audit", "email"],
      messageIds: [expect.any(Number), expect.any(Number)],
      inserted: [true, true],
    });
    expect(Object.isFrozen(receipt)).toBe(true);
    const rows = select(location, "SELECT id, queue, job_id, attempts, max_attempts, dedup_key FROM messages");
    expect(rows).toEqual(
      ["audit", "email"].map((name, i) => ({
        id: receipt.messageIds[i],
        queue: `__bus__:app:${name}`,
        job_id: event.id,
        attempts: 0,
        max_attempts: 4,
        dedup_key: null,
      })),
    );
    const stored = {
      event_id: event.id,
      correlation_id: event.id,
      causation_id: null,
      event_type: "user.created",
      event_schema: "user.created@1",
      event_created_at: expect.any(String),
      payload: { userId: "7" },
    };
    expect(storedIn(location, "email", "app")).toEqual([stored]);
    expect(storedIn(location, "audit", "app")).toEqual([stored]);
  });

  test("needs no handlers in the process that dispatches it", async () => {
    const bus = openBus({ topology });
    await bus.dispatch(UserCreated({ userId: "7" }));
    expect(await bus.subscription("email").stats()).toEqual({ ready: 1, processing: 0, acked: 0, failed: 0 });
  });

  test("again, by its id, changes nothing in the subscriptions that know it", async () => {
    const location = tempLocation();
    const event = UserCreated({ userId: "7" });
    const first = await openBus({ location, topology: new BusTopology({ email: [UserCreated] }) }).dispatch(event);
    const grown = openBus({ location, topology });
    const { subscriptions, inserted, messageIds } = await grown.dispatch(event);
    expect([subscriptions, inserted]).toEqual([
      ["audit", "email"],
      [true, false],
    ]);
    expect(messageIds[1]).toBe(first.messageIds[0]);
    expect((await grown.dispatch(event)).inserted).toEqual([false, false]);
  });

  test("that has an identity is recognised by it, whatever its id", async () => {
    const location = tempLocation();
    const first = await openBus({ location, topology }).dispatch(Paid({ order: "o1", cents: 5 }));
    const again = await openBus({ location, topology }).dispatch(Paid({ cents: 5, order: "o1" }));
    expect(again.messageIds).toEqual(first.messageIds);
    expect(again.inserted).toEqual([false, false]);
    expect(again.eventId).not.toBe(first.eventId);
    expect(storedIn(location, "billing")).toHaveLength(1);
  });

  test("and says something else under a known identity is refused everywhere", async () => {
    const location = tempLocation();
    await openBus({ location, topology: new BusTopology({ billing: [Paid] }) }).dispatch(Paid({ order: "o1" }));
    const conflict = openBus({ location, topology }).dispatch(Paid({ order: "o1", cents: 5 }));
    await expect(conflict).rejects.toThrow(DeduplicationConflictError);
    await expect(conflict).rejects.toMatchObject({ code: "DEDUPLICATION_CONFLICT" });
    expect(storedIn(location, "audit")).toEqual([]); // it has never seen it, and does not get it either
  });

  test("and shares its correlation with another one is another event", async () => {
    const bus = openBus({ topology });
    const root = UserCreated({ userId: "7" });
    const child = UserCreated.from(root, { userId: "8" });
    expect((await bus.dispatch(root)).inserted).toEqual([true, true]);
    expect((await bus.dispatch(child)).inserted).toEqual([true, true]);
  });

  test.each([{ order: "" }, { order: " \t" }, { order: null }, {}, { order: Number.NaN }])(
    "must have a usable identity: nothing of %j is stored",
    async (data) => {
      const location = tempLocation();
      const bus = openBus({ location, topology });
      await bus.dispatch(UserCreated({ userId: "7" }));
      expect(() => Paid(data as { order: string })).toThrow(InvalidEventError);
      expect(storedIn(location, "billing")).toEqual([]);
    },
  );

  test("has the budget of the bus that dispatches it", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology: new BusTopology({ email: [UserCreated] }), maxRetries: 0 });
    const { messageIds } = await bus.dispatch(UserCreated({ userId: "7" }));
    expect(readRow(location, messageIds[0] as number)).toMatchObject({ max_attempts: 1 });
  });

  test("waits for whoever has locked the database", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    await bus.dispatch(UserCreated({ userId: "1" }));
    const unlock = lockDatabase(location);
    const dispatching = bus.dispatch(UserCreated({ userId: "2" }));
    unlock();
    expect((await dispatching).inserted).toEqual([true, true]);
  });
});

describe("an event for which there is no subscription", () => {
  const narrow = new BusTopology({ email: [UserCreated] });

  test("is refused", async () => {
    const dispatching = openBus({ topology: narrow }).dispatch(Paid({ order: "o1" }));
    await expect(dispatching).rejects.toThrow(NoSubscribersError);
    await expect(dispatching).rejects.toThrow(
      'No subscription of the topology gets events of the type "order.paid". Add it to one, or allow this with requireSubscribers: false',
    );
  });

  test("is dropped where that is allowed", async () => {
    const bus = openBus({ topology: narrow, requireSubscribers: false });
    const event = Paid({ order: "o1" });
    expect(await bus.dispatch(event)).toEqual({
      eventId: event.id,
      eventType: "order.paid",
      subscriptions: [],
      messageIds: [],
      inserted: [],
    });
    const [dropped, kept] = await bus.dispatchMany([event, UserCreated({ userId: "7" })]);
    expect([dropped?.subscriptions, kept?.subscriptions]).toEqual([[], ["email"]]);
    expect(kept?.messageIds).toHaveLength(1);
  });

  test("is not given one by a handler", async () => {
    const bus = openBus({ topology: narrow });
    bus.subscription("email").handler("*", () => {});
    await expect(bus.dispatch(Paid({ order: "o1" }))).rejects.toThrow(NoSubscribersError);
  });
});

describe("several events", () => {
  test("are stored in one transaction, with receipts in their order", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    const events = [UserCreated({ userId: "1" }), Paid({ order: "o1" }), UserCreated({ userId: "2" })];
    const receipts = await bus.dispatchMany(new Set(events));
    expect(receipts.map(({ eventId }) => eventId)).toEqual(events.map(({ id }) => id));
    expect(receipts.map(({ subscriptions }) => subscriptions[1])).toEqual(["email", "billing", "email"]);
    expect(storedIn(location, "audit").map(({ event_id }) => event_id)).toEqual(events.map(({ id }) => id));
  });

  test("are stored all or not at all", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    const conflict = bus.dispatchMany([
      UserCreated({ userId: "1" }),
      Paid({ order: "o" }),
      Paid({ order: "o", cents: 1 }),
    ]);
    await expect(conflict).rejects.toThrow(DeduplicationConflictError);
    expect(select(location, "SELECT id FROM messages")).toEqual([]);
  });

  test("may be none", async () => {
    expect(await openBus({ topology }).dispatchMany([])).toEqual([]);
  });
});

describe("an event with an asynchronous schema", () => {
  const Checked = defineEvent(
    "checked",
    schema(async ({ n }: { n: number }) => {
      if (n < 0) throw new Error("n is negative");
      return { double: n * 2 };
    }),
  );
  const checked = new BusTopology({ audit: [Checked] });

  test("is validated before it is stored, and stored as it was given", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology: checked });
    const event = Checked({ n: 4 });
    await bus.dispatch(event);
    expect(event.data).toEqual({ double: 8 });
    expect(storedIn(location, "audit")[0]?.["payload"]).toEqual({ n: 4 });
  });

  test("is refused if it does not fit, and all that was dispatched with it", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology: checked });
    const refused = bus.dispatchMany([Checked({ n: 1 }), Checked({ n: -1 })]);
    await expect(refused).rejects.toThrow(InvalidEventError);
    await expect(refused).rejects.toThrow("n is negative");
    await bus.dispatch(Checked({ n: 2 }));
    expect(storedIn(location, "audit")).toHaveLength(1);
  });
});

describe("a bus", () => {
  test("of another name has its own subscriptions in the same file", async () => {
    const location = tempLocation();
    const [one, other] = ["one", "other"].map((name) => openBus({ location, topology, name }));
    const event = UserCreated({ userId: "7" });
    await one?.dispatch(event);
    expect(await other?.subscription("email").stats()).toMatchObject({ ready: 0 });
    expect((await other?.dispatch(event))?.inserted).toEqual([true, true]);
  });

  test("makes what it stores as safe as `fsync` says", async () => {
    for (const fsync of [true, false]) {
      const bus = openBus({ topology, fsync });
      await bus.dispatch(UserCreated({ userId: "7" }));
      expect((await bus.subscription("email").diagnostics()).durabilityMode).toBe(fsync ? "full" : "normal");
    }
  });

  test.each([
    [5, "Expected `event` to be an event made by its definition, got `5` (number)"],
    [{ ...UserCreated({ userId: "7" }) }, "Expected `event` to be an event made by its definition"],
    [UserCreated, "Expected `event` to be an event made by its definition"],
    [hostile(), "Expected `event` to be an event made by its definition"],
  ])("dispatches events only", async (value, message) => {
    await expect(openBus({ topology }).dispatch(value as never)).rejects.toThrow(message);
  });

  test.each([
    [5, "Expected `events` to be an array or another iterable of events, got `5` (number)"],
    [[UserCreated({ userId: "7" }), "x"], "Expected `events[1]` to be an event made by its definition, got"],
  ])("dispatches many events only", async (value, message) => {
    await expect(openBus({ topology }).dispatchMany(value as never)).rejects.toThrow(message);
  });

  test.each([
    [undefined, "topology"],
    [{}, "Expected `topology` to be a BusTopology, got `undefined`"],
    [{ topology: { email: ["*"] } }, "Expected `topology` to be a BusTopology"],
    [{ topology, name: "a:b" }, "Expected `name` to be a name of 1 to 100 letters"],
    [{ topology, name: "" }, "`name`"],
    [{ topology, name: "x".repeat(101) }, "`name`"],
    [{ topology, leaseMs: 9 }, "`leaseMs`"],
    [{ topology, maxRetries: -1 }, "`maxRetries`"],
    [{ topology, fsync: 1 }, "`fsync`"],
    [{ topology, requireSubscribers: "no" }, "`requireSubscribers`"],
    [{ topology, createContext: {} }, "`createContext`"],
    [{ topology, retention: 5 }, "`retention`"],
    [{ topology, serializer: {} }, "Unknown option `serializer`"],
  ])("refuses misused options", (options, message) => {
    expect(() => new EventBus(tempLocation(), options as never)).toThrow(message);
  });

  test("does nothing more once it is closed", async () => {
    const bus = openBus({ topology });
    await bus.dispatch(UserCreated({ userId: "7" }));
    await bus.close();
    await bus.close();
    for (const refused of [
      bus.dispatch(UserCreated({ userId: "8" })),
      bus.dispatchMany([]),
      bus.run(),
      bus.subscription("email").stats(),
      bus.subscription("email").listFailed(),
    ]) {
      await expect(refused).rejects.toThrow(QueueClosedError);
    }
    await expect(bus.run()).rejects.toThrow('Event bus "default" is closed');
  });

  test("is closed by `await using`", async () => {
    let outside: EventBus;
    {
      await using bus = new EventBus(tempLocation(), { topology });
      await bus.dispatch(UserCreated({ userId: "7" }));
      outside = bus;
    }
    await expect(outside.dispatch(UserCreated({ userId: "8" }))).rejects.toMatchObject({ code: "CLOSED" });
  });
});
