import { AsyncLocalStorage } from "node:async_hooks";
import { channel } from "node:diagnostics_channel";
import type { ClaimMessage } from "localqueue";
import { describe, expect, onTestFinished, test } from "vitest";
import { BusTopology, defineEvent } from "../dist/bus/index.js";
import { IDLE, listenToBus, openBus, run, storedIn } from "./support/bus.ts";
import { listen, listenToAll } from "./support/channels.ts";
import { readRow, steal } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";

const Created = defineEvent<{ n: number }>("created");
const Done = defineEvent<{ n: number }>("done", undefined, { identity: ["n"] });
const topology = new BusTopology({ email: [Created], work: [Created], after: [Done] });

describe("what is told on the channels", () => {
  test("of an event that is dispatched is one put into the queue of the bus", async () => {
    const bus = openBus({ topology, name: "app" });
    const told = listenToAll("localqueue:put:end");
    const event = Created({ n: 1 });
    const { messageIds } = await bus.dispatch(event);
    await bus.dispatch(event);
    const put = { queue: "__bus__:app", jobId: event.id, delayMs: 0, id: messageIds[0], error: undefined };
    expect(told).toMatchObject([
      ["localqueue:put:end", { ...put, inserted: true }],
      ["localqueue:put:end", { ...put, inserted: false }],
    ]);
  });

  test("of a delivery is a claim, a run of the handler, and how it was settled", async () => {
    const bus = openBus({ topology });
    const told = listenToAll("localqueue:claim", "localqueue:handler", "localqueue:handler:end", "localqueue:settle");
    bus.subscription("email", { retry: () => 0 }).handler(Created, (_, { attempt }) => {
      if (attempt === 1) throw new Error("no");
    });
    const event = Created({ n: 1 });
    const { messageIds } = await bus.dispatch(event);
    await bus.run(IDLE);
    const delivery = { queue: "__bus__:default:email", id: messageIds[0], jobId: event.id };
    const [first, second] = [1, 2].map((attempt) => ({ ...delivery, attempt }));
    expect(told).toMatchObject([
      ["localqueue:claim", first as object],
      ["localqueue:handler", first as object],
      ["localqueue:handler:end", { ...first, outcome: "threw" }],
      ["localqueue:settle", { ...first, outcome: "retried", delayMs: 0, lastError: "Error: no" }],
      ["localqueue:claim", second as object],
      ["localqueue:handler", second as object],
      ["localqueue:handler:end", { ...second, outcome: "returned" }],
      ["localqueue:settle", { ...second, outcome: "acked" }],
    ]);
  });

  test("of a delivery of an unknown type is that it was released", async () => {
    const location = tempLocation();
    const newer = new BusTopology({ email: [Created, Done] });
    await openBus({ location, topology: newer }).dispatch(Done({ n: 1 }));
    const bus = openBus({ location, topology: new BusTopology({ email: [Created] }) });
    listenToBus(bus);
    const told = listenToAll("localqueue:claim", "localqueue:handler", "localqueue:settle");
    bus.subscription("email").handler(Created, () => {});
    await bus.run(IDLE);
    expect(told).toMatchObject([
      ["localqueue:claim", { attempt: 1 }],
      ["localqueue:settle", { outcome: "released" }],
    ]);
  });
});

describe("the context of a trace", () => {
  /** What a tracer does: each put carries the handler's span on, each handler is a span of its own. */
  function trace(): AsyncLocalStorage<string> {
    const spans = new AsyncLocalStorage<string>();
    const handlers = channel("localqueue:handler");
    handlers.bindStore(
      spans,
      (message) => `${(message as { context: string }).context}>${(message as { queue: string }).queue.slice(16)}`,
    );
    onTestFinished(() => void handlers.unbindStore(spans));
    listen("localqueue:put", (message) => {
      message.context = spans.getStore() ?? "root";
    });
    return spans;
  }

  test("comes with each delivery of the event, and goes on with what the handlers emit and dispatch", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    const spans = trace();
    const claims = listenToAll("localqueue:claim");
    const inside: unknown[] = [];
    bus.subscription("email").handler(Created, async (_, { emit }) => {
      await new Promise(setImmediate);
      inside.push(spans.getStore());
      emit(Done({ n: 2 }));
      return Done({ n: 3 });
    });
    bus.subscription("work").handler(Created, async () => void (await bus.dispatch(Done({ n: 4 }))));
    bus.subscription("after", { concurrency: 3 }).handler(Done, () => void inside.push(spans.getStore()));
    await bus.dispatch(Created({ n: 1 }));
    await bus.run(IDLE);
    const contexts = claims.map(([, claim]) => `${claim.queue.slice(16)} ${(claim as ClaimMessage).context}`);
    expect(contexts.sort()).toEqual([
      "after root>email",
      "after root>email",
      "after root>work",
      "email root",
      "work root",
    ]);
    expect(inside.sort()).toEqual(["root>email", "root>email>after", "root>email>after", "root>work>after"]);
  });

  test("is created inside the handler's span also if createContext is asynchronous", async () => {
    const spans = trace();
    const seen: unknown[] = [];
    const bus = openBus({
      topology,
      createContext: async () => {
        seen.push(spans.getStore());
        return {};
      },
    });
    bus.subscription("email").handler(Created, () => void seen.push(spans.getStore()));
    await bus.dispatch(Created({ n: 1 }));
    await bus.run(IDLE);
    expect(seen).toEqual(["root>email", "root>email"]);
  });
});

describe("a put that a handler asked for by emitting", () => {
  test("has ended when the acknowledgement is committed", async () => {
    const bus = openBus({ topology });
    bus.subscription("email").handler(Created, () => Done({ n: 2 }));
    await bus.dispatch(Created({ n: 1 }));
    const told = listenToAll("localqueue:put", "localqueue:put:end");
    await bus.run(IDLE);
    expect(told).toMatchObject([
      ["localqueue:put", { queue: "__bus__:default" }],
      ["localqueue:put:end", { error: undefined }],
    ]);
  });

  test("has failed with the reason if nothing was committed", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    listenToBus(bus);
    const Conflicting = defineEvent<{ n: number; more?: number }>("done", undefined, { identity: ["n"] });
    await bus.dispatch(Done({ n: 2 }));
    bus.subscription("email").handler(Created, () => [Done({ n: 3 }), Conflicting({ n: 2, more: 1 })]);
    await bus.dispatch(Created({ n: 1 }));
    const told = listenToAll("localqueue:put:end");
    await bus.run(IDLE);
    expect(told).toHaveLength(2);
    for (const [, end] of told) expect(end).toMatchObject({ error: { code: "DEDUPLICATION_CONFLICT" } });
    expect(storedIn(location, "after")).toHaveLength(1);
  });

  test("has failed, too, if the lease was lost before", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    const lost = listenToBus(bus);
    const { messageIds } = await bus.dispatch(Created({ n: 1 }));
    bus.subscription("email", { heartbeatMs: false }).handler(Created, () => {
      steal(location, messageIds[0] as number);
      return Done({ n: 2 });
    });
    const told = listenToAll("localqueue:put:end", "localqueue:lease-lost");
    const running = run(bus);
    await until(() => lost.length > 0);
    await bus.close();
    await running;
    expect(told.map(([name]) => name).sort()).toEqual(["localqueue:lease-lost", "localqueue:put:end"]);
    const [, end] = told.find(([name]) => name === "localqueue:put:end") ?? [];
    expect(end).toMatchObject({ id: undefined, error: { code: "LEASE_EXPIRED" } });
    expect(readRow(location, messageIds[0] as number)).toMatchObject({ status: 1 });
  });
});
