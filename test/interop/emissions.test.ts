import { expect, test } from "vitest";
import { BusTopology, type Event } from "../../dist/bus/index.js";
import { edgesOf, IDLE, openBus, storedIn } from "../support/bus.ts";
import { faultsOf } from "../support/inspect.ts";
import { tempDirectory } from "../support/temp.ts";
import { type Does, OrderPaid, Task } from "./support/events.ts";
import { PythonBus } from "./support/python-bus.ts";

const routes = { here: ["task"], there: ["order.paid"], also: ["order.paid"] };
const topology = new BusTopology({ here: [Task], there: [OrderPaid], also: [OrderPaid] });

function open() {
  const directory = tempDirectory();
  return { directory, bus: openBus({ location: directory, topology }), python: new PythonBus(directory, { routes }) };
}

/** What is stored of the lineage in a subscription. */
function lineageIn(directory: string, subscription: string): object[] {
  const stored = storedIn(directory, subscription);
  return stored.map(({ event_id, correlation_id, causation_id }) => ({ event_id, correlation_id, causation_id }));
}

test("what goes to and fro between handlers of both languages goes back to where it began, link by link", async () => {
  const directory = tempDirectory();
  const python = new PythonBus(directory, { routes: { python: ["task"], node: ["order.paid"] } });
  const bus = openBus({ location: directory, topology: new BusTopology({ python: [Task], node: [OrderPaid] }) });
  const rounds = 3;
  /** Python emits an order for each task, and we a task for each order. */
  const task = (n: number): { n: number; does: Does } => {
    return { n, does: { emit: ["order.paid", { order_id: `${n}`, cents: n }] } };
  };
  bus.subscription("node").handler(OrderPaid, ({ data }) => {
    return data.cents < rounds ? Task(task(data.cents + 1)) : undefined;
  });
  const root = await bus.dispatch(Task(task(1)));
  for (let round = 1; round <= rounds; round++) {
    expect((await python.run(["python"])).map(({ data }) => data["n"])).toEqual([round]);
    await bus.run(IDLE);
  }
  const [tasks, orders] = [lineageIn(directory, "python"), lineageIn(directory, "node")] as Record<string, string>[][];
  const chain = Array.from({ length: rounds }, (_, n) => [tasks?.[n], orders?.[n]]).flat();
  expect(chain.map((link) => link?.["correlation_id"])).toEqual(chain.map(() => root.eventId));
  expect(chain.map((link) => link?.["causation_id"])).toEqual([
    null,
    ...chain.slice(0, -1).map((link) => link?.["event_id"]),
  ]);
  const data = [1, 2, 3].flatMap((n) => [task(n), { order_id: `${n}`, cents: n }]);
  expect(edgesOf(directory)).toEqual(data.slice(1).map((child, parent) => [data[parent], child]));
  expect(faultsOf(directory)).toEqual([]);
});

test("what a handler of Python emits is committed with its ack, and comes here with its lineage", async () => {
  const { directory, bus, python } = open();
  const emit = ["order.paid", { order_id: "A-7", cents: 1 }] as const;
  const parent = Task({ n: 1, does: { emit } });
  await bus.dispatch(parent);
  await python.run(["here"]);
  expect(await bus.subscription("here").stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  const got: Event[] = [];
  bus.subscription("there").handler(OrderPaid, (event) => void got.push(event));
  await bus.run(IDLE);
  expect(got).toMatchObject([{ correlationId: parent.id, causationId: parent.id, data: emit[1] }]);
  expect(edgesOf(directory).length).toBe(2);
});

test("what both emit of one business event is one delivery, with an edge from each of its parents", async () => {
  const { directory, bus, python } = open();
  const data = { order_id: "A-7", cents: 1 };
  await bus.dispatch(Task({ n: 1, does: { emit: ["order.paid", data] } }));
  await python.run(["here"]);
  bus.subscription("here").handler(Task, () => OrderPaid(data));
  await bus.dispatch(Task({ n: 2 }));
  await bus.run(IDLE);
  expect(storedIn(directory, "there").map(({ payload }) => payload)).toEqual([data]);
  const parents = edgesOf(directory).map(([parent]) => (parent as { n: number }).n);
  expect(parents).toEqual([1, 1, 2, 2]);
});

test("an emission that conflicts with what the other language stored is a dead letter of its parent, on both sides", async () => {
  const { directory, bus, python } = open();
  await bus.dispatch(OrderPaid({ order_id: "by node", cents: 1 }));
  await python.dispatch("order.paid", { order_id: "by python", cents: 1 });
  await bus.dispatch(Task({ n: 1, does: { emit: ["order.paid", { order_id: "by node", cents: 2 }] } }));
  await python.run(["here"]);
  const here = bus.subscription("here").handler(Task, () => OrderPaid({ order_id: "by python", cents: 2 }));
  bus.on("event:failed", () => {});
  await bus.dispatch(Task({ n: 2 }));
  await bus.run(IDLE);
  const told = (letters: readonly object[]): object[] => letters.map((letter) => ({ ...letter }));
  const expected = { reason: "permanent_handler_error", category: "deduplication_conflict", attempts: 1 };
  expect(told(await here.listFailed())).toMatchObject([expected, expected]);
  expect(told(await python.listFailed("here"))).toMatchObject([expected, expected]);
  expect(edgesOf(directory)).toEqual([]);
});
