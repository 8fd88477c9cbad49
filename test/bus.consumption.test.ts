import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent, type Event, type EventContext } from "../dist/bus/index.js";
import { IDLE, listenToBus, openBus, run, schema, storedIn } from "./support/bus.ts";
import { steal } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";
import { gate } from "./support/worker.ts";

const Created = defineEvent<{ n: number }>("created");
const Deleted = defineEvent<{ n: number }>("deleted");
const topology = new BusTopology({ email: [Created], stats: [Created, Deleted], audit: ["*"] });

describe("a handler", () => {
  test("gets the event as it was dispatched, and what its delivery is like", async () => {
    const bus = openBus({ topology });
    const told = listenToBus(bus);
    const event = Created({ n: 1 });
    await bus.dispatch(event);
    let received: [Event<{ n: number }>, EventContext] | undefined;
    bus.subscription("email").handler(Created, (...all) => {
      received = all;
    });
    await bus.run(IDLE);
    const [copy, context] = received ?? [];
    expect(copy).toEqual(event);
    expect(Object.isFrozen(copy)).toBe(true);
    expect(context).toMatchObject({ attempt: 1, eventId: event.id, subscription: "email" });
    expect(context?.signal).toBeInstanceOf(AbortSignal);
    expect(told).toEqual([["event:acked", "email", { n: 1 }]]);
    expect(await bus.subscription("email").stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  });

  test("may be given by a definition, by a type, or for all: the exact one wins, whatever the order", async () => {
    const bus = openBus({ topology });
    const seen: string[] = [];
    const note = (who: string) => (event: Event) => void seen.push(`${who} ${event.type}`);
    bus
      .subscription("audit")
      .handler("*", note("all"))
      .handler("deleted", note("exact"))
      .handler(Created, note("exact"));
    bus.subscription("stats").handler(Created, note("by definition")).handler("*", note("the rest"));
    await bus.dispatchMany([Created({ n: 1 }), Deleted({ n: 2 })]);
    await bus.run(IDLE);
    expect(seen.sort()).toEqual(["by definition created", "exact created", "exact deleted", "the rest deleted"]);
  });

  test("that was given by a type, or for all, gets what the schema of the definition makes", async () => {
    const Doubled = defineEvent(
      "doubled",
      schema(({ n }: { n: number }) => ({ n: n * 2 })),
    );
    const seen: unknown[] = [];
    for (const pattern of ["doubled", "*"]) {
      const bus = openBus({ topology: new BusTopology({ a: [Doubled] }) });
      bus.subscription("a").handler(pattern, (event) => void seen.push(event.data));
      await bus.dispatch(Doubled({ n: 4 }));
      await bus.run(IDLE);
    }
    expect(seen).toEqual([{ n: 8 }, { n: 8 }]);
  });

  test("may be asynchronous: the event is done when the promise is", async () => {
    const bus = openBus({ topology });
    const told = listenToBus(bus);
    const finish = gate();
    bus.subscription("email").handler(Created, () => finish.passed);
    await bus.dispatch(Created({ n: 1 }));
    const running = run(bus, IDLE);
    await until(async () => (await bus.subscription("email").stats()).processing === 1);
    expect(told).toEqual([]);
    finish.open();
    await running;
    expect(told).toHaveLength(1);
  });

  test("gets the number of the delivery, and the same id each time", async () => {
    const bus = openBus({ topology });
    const event = Created({ n: 1 });
    const seen: unknown[] = [];
    bus.subscription("email", { retry: () => 0 }).handler(Created, (_, { attempt, eventId }) => {
      seen.push([attempt, eventId]);
      if (attempt < 3) throw new Error("no");
    });
    await bus.dispatch(event);
    await bus.run(IDLE);
    expect(seen).toEqual([1, 2, 3].map((attempt) => [attempt, event.id]));
  });

  test("whose lease is lost is aborted, and nothing is recorded of what it returns", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology, leaseMs: 300 });
    const told = listenToBus(bus);
    const { messageIds } = await bus.dispatch(Deleted({ n: 1 }));
    let reason: unknown;
    bus.subscription("audit", { heartbeatMs: 30 }).handler("*", async (_, { signal, emit }) => {
      emit(Created({ n: 2 }));
      steal(location, messageIds[0] as number);
      await until(() => signal.aborted);
      reason = signal.reason;
      return Created({ n: 3 });
    });
    const running = run(bus);
    await until(() => told.length > 0);
    await until(() => reason);
    await bus.close();
    await running;
    expect(told).toEqual([["lease:lost", "audit", { n: 1 }]]);
    expect(reason).toMatchObject({ code: "LEASE_EXPIRED" });
    expect(storedIn(location, "email")).toEqual([]);
  });

  test("that blocks the event loop for longer than the lease keeps it", async () => {
    const bus = openBus({ topology, leaseMs: 150, maxRetries: 0 });
    const told = listenToBus(bus);
    bus.subscription("email").handler(Created, () => {
      const end = performance.now() + 500;
      while (performance.now() < end);
    });
    await bus.dispatch(Created({ n: 1 }));
    await bus.run(IDLE);
    expect(told).toEqual([["event:acked", "email", { n: 1 }]]);
  });
});

describe("a run", () => {
  test("consumes only the subscriptions that have handlers here", async () => {
    const bus = openBus({ topology });
    bus.subscription("email").handler(Created, () => {});
    await bus.dispatch(Created({ n: 1 }));
    await bus.run(IDLE);
    expect(await bus.subscription("email").stats()).toMatchObject({ acked: 1 });
    expect(await bus.subscription("stats").stats()).toMatchObject({ ready: 1, acked: 0 });
  });

  test("without handlers is over at once", async () => {
    await openBus({ topology }).run();
  });

  test("of one subscription leaves the others alone", async () => {
    const bus = openBus({ topology });
    for (const name of ["email", "audit"]) bus.subscription(name).handler("*", () => {});
    await bus.dispatch(Created({ n: 1 }));
    await bus.runSubscription("email", IDLE);
    expect(await bus.subscription("email").stats()).toMatchObject({ acked: 1 });
    expect(await bus.subscription("audit").stats()).toMatchObject({ ready: 1 });
  });

  test("never has more handlers at once than each subscription allows, and claims no more than that", async () => {
    const bus = openBus({ topology });
    await bus.dispatchMany(Array.from({ length: 6 }, (_, n) => Created({ n })));
    const now = { email: 0, audit: 0 };
    const peak = { email: 0, audit: 0 };
    const finish = gate();
    for (const [name, concurrency] of [
      ["email", 3],
      ["audit", 1],
    ] as const) {
      bus.subscription(name, { concurrency }).handler("*", async () => {
        peak[name] = Math.max(peak[name], ++now[name]);
        await finish.passed;
        now[name]--;
      });
    }
    const running = run(bus, IDLE);
    await until(() => now.email === 3 && now.audit === 1);
    expect(await bus.subscription("email").stats()).toMatchObject({ processing: 3, ready: 3 });
    expect(await bus.subscription("audit").stats()).toMatchObject({ processing: 1, ready: 5 });
    finish.open();
    await running;
    expect(peak).toEqual({ email: 3, audit: 1 });
    expect(await bus.subscription("email").stats()).toMatchObject({ acked: 6 });
  });

  test("keeps the lineage of each event, however many run at once", async () => {
    const Echo = defineEvent<{ n: number }>("echo");
    const location = tempLocation();
    const bus = openBus({ location, topology: new BusTopology({ a: [Created], b: [Echo] }) });
    const events = Array.from({ length: 50 }, (_, n) => Created({ n }));
    await bus.dispatchMany(events);
    bus.subscription("a", { concurrency: 20 }).handler(Created, async ({ data }) => {
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 10));
      return Echo({ n: data.n });
    });
    await bus.run(IDLE);
    const echoes = storedIn(location, "b");
    expect(echoes).toHaveLength(50);
    for (const { payload, correlation_id, causation_id } of echoes) {
      const parent = events[(payload as { n: number }).n] as Event;
      expect([correlation_id, causation_id]).toEqual([parent.correlationId, parent.id]);
    }
  });

  test("in which one subscription fails does not keep the other from its work", async () => {
    const bus = openBus({ topology, maxRetries: 0 });
    const told = listenToBus(bus);
    const boom = new Error("boom");
    bus.subscription("email").handler(Created, () => Promise.reject(boom));
    bus.subscription("audit").handler("*", () => {});
    await bus.dispatchMany([Created({ n: 1 }), Created({ n: 2 })]);
    await bus.run(IDLE);
    expect(await bus.subscription("email").stats()).toMatchObject({ acked: 0, failed: 2 });
    expect(await bus.subscription("audit").stats()).toMatchObject({ acked: 2, failed: 0 });
    expect(told.filter(([name]) => name === "event:failed")).toEqual([
      ["event:failed", "email", { n: 1 }, boom, "retries_exhausted"],
      ["event:failed", "email", { n: 2 }, boom, "retries_exhausted"],
    ]);
  });

  test("may follow another one that is over", async () => {
    const bus = openBus({ topology });
    const seen: number[] = [];
    bus.subscription("email").handler(Created, ({ data }) => void seen.push(data.n));
    for (const n of [1, 2, 3]) {
      await bus.dispatch(Created({ n }));
      await bus.run(IDLE);
    }
    expect(seen).toEqual([1, 2, 3]);
  });
});
