import { expect, test } from "vitest";
import { BusTopology, type Event } from "../../dist/bus/index.js";
import { Reject } from "../../dist/index.js";
import { IDLE, openBus, run } from "../support/bus.ts";
import { openDatabase } from "../support/database.ts";
import { faultsOf, select } from "../support/inspect.ts";
import { openQueue } from "../support/queue.ts";
import { tempDirectory } from "../support/temp.ts";
import { until } from "../support/until.ts";
import { Anything, type Does, OrderPaid, Task } from "./support/events.ts";
import { PythonQueue } from "./support/python.ts";
import { PythonBus } from "./support/python-bus.ts";

const routes = { work: ["task"], email: ["order.paid"], audit: ["anything"] };
const topology = new BusTopology({ work: [Task], email: [OrderPaid], audit: [Anything] });

function open() {
  const directory = tempDirectory();
  const bus = openBus({ location: directory, topology });
  bus.on("event:failed", () => {});
  return { directory, bus, python: new PythonBus(directory, { routes }) };
}

function tasks(count: number, does?: (n: number) => Does): { n: number }[] {
  return Array.from({ length: count }, (_, n) => (does === undefined ? { n } : { n, does: does(n) }));
}

function order(n: number): { order_id: string; cents: number } {
  return { order_id: `${n}`, cents: n };
}

/** The types of the events that belong to executions, in the order of their deliveries. */
function members(directory: string): unknown[] {
  const rows = select(
    directory,
    `SELECT CAST(payload AS TEXT) ->> 'event_type' AS type FROM event_bus_execution_deliveries
      JOIN messages ON id = message_id ORDER BY execution_id, id`,
  );
  return rows.map(({ type }) => type);
}

/** Whether the execution of a file, of which there is one, counts as complete. */
function isComplete(directory: string): boolean {
  const [row] = select(directory, "SELECT completed_at FROM event_bus_execution_runtime");
  return row?.["completed_at"] !== null;
}

async function expectHealth(directory: string): Promise<void> {
  expect(faultsOf(directory)).toEqual([]);
  expect(select(directory, "PRAGMA foreign_key_check")).toEqual([]);
  expect(await new PythonQueue(directory).call("check_integrity")).toMatchObject({ ok: true });
}

test("an execution of Python completes when everything is handled here, with what our handlers emitted", async () => {
  const { directory, bus, python } = open();
  const seen: unknown[] = [];
  bus.subscription("work").handler(Task, ({ data }) => OrderPaid(order(data.n)));
  bus.subscription("email").handler(OrderPaid, ({ data }) => void seen.push(data.cents));
  bus.subscription("audit").handler(Anything, () => {});
  void run(bus);
  const result = await python.execute(tasks(4), "people", { batch_size: 2 });
  expect(result).toMatchObject({
    resumed: false,
    succeeded: true,
    source_completed: true,
    items_committed: 4,
    events_dispatched: 4,
    deliveries_inserted: 4,
    deliveries_total: 8,
    deliveries_acknowledged: 8,
    deliveries_failed: 0,
  });
  expect(seen.sort()).toEqual([0, 1, 2, 3]);
  expect(members(directory).sort()).toEqual([...Array(4).fill("order.paid"), ...Array(4).fill("task")]);
  // It is known to be over: nothing is brought in or handled again.
  expect(await python.execute(tasks(4), "people")).toMatchObject({ ...result, resumed: true });
  await expectHealth(directory);
});

test("an execution whose events go from a handler of Python to ours, and from there on, contains all of them", async () => {
  const { directory, bus, python } = open();
  bus.subscription("email").handler(OrderPaid, (event) => Anything({ tenant: "t", key: event.data.order_id }));
  const last: Event[] = [];
  bus.subscription("audit").handler(Anything, (event) => void last.push(event));
  void run(bus);
  const items = tasks(3, (n) => ({ emit: ["order.paid", order(n)] }));
  const result = await python.execute(items, "people", { run: ["work"] });
  expect(result).toMatchObject({ succeeded: true, deliveries_total: 9, deliveries_acknowledged: 9 });
  expect(last.length).toBe(3);
  await expectHealth(directory);
});

test("a dead letter of ours is a failure of the execution, and a replay opens that again until it is handled", async () => {
  const { directory, bus, python } = open();
  bus.subscription("work").handler(Task, ({ data }) => {
    if (data.n === 1) throw new Reject("not today");
  });
  void run(bus);
  const first = await python.execute(tasks(3), "people");
  expect(first).toMatchObject({ succeeded: false, deliveries_acknowledged: 2, deliveries_failed: 1 });
  expect(isComplete(directory)).toBe(true);

  await bus.close(); // so that nobody handles it at once
  const other = openBus({ location: directory, topology });
  expect(await other.subscription("work").retryFailed({})).toBe(1);
  expect(isComplete(directory)).toBe(false);
  const again = python.execute(tasks(3), "people");
  other.subscription("work").handler(Task, () => {});
  void run(other);
  expect(await again).toMatchObject({
    execution_id: first.execution_id,
    resumed: true,
    succeeded: true,
    deliveries_total: 3,
    deliveries_acknowledged: 3,
  });
  await expectHealth(directory);
});

test("an execution that ran out of time in the middle of its source goes on where it was", async () => {
  const { directory, bus, python } = open();
  const hanging = [...tasks(2), { n: 2, hangs: true }, ...tasks(6).slice(3)];
  await expect(python.execute(hanging, "people", { batch_size: 1, timeout: 2 })).rejects.toMatchObject({
    name: "TimeoutError",
  });
  const handled: number[] = [];
  bus.subscription("work").handler(Task, ({ data }) => void handled.push(data.n));
  await bus.run(IDLE);
  expect(handled).toEqual([0, 1]);
  const rest = python.execute(tasks(6), "people", { batch_size: 1 });
  void run(bus);
  expect(await rest).toMatchObject({ resumed: true, succeeded: true, items_committed: 6, deliveries_total: 6 });
  expect(handled).toEqual([0, 1, 2, 3, 4, 5]);
  await expectHealth(directory);
});

test("an execution whose Python process was killed is taken up by another one, and each item comes here once", async () => {
  const { directory, bus, python } = open();
  const options = { batch_size: 1, max_pending: 2 };
  const victim = new PythonBus(directory, { routes });
  victim.execute(tasks(6), "people", options).catch(() => {});
  await until(async () => (await bus.subscription("work").stats()).ready === 2);
  await victim.kill();
  const handled: number[] = [];
  bus.subscription("work").handler(Task, ({ data }) => void handled.push(data.n));
  void run(bus);
  await until(() => handled.length === 2);
  letSourceLeasesEnd(directory);
  expect(await python.execute(tasks(6), "people", options)).toMatchObject({ resumed: true, succeeded: true });
  expect(handled).toEqual([0, 1, 2, 3, 4, 5]);
  await expectHealth(directory);
});

/** As if the minute had passed for which the process that reads a source has it. */
function letSourceLeasesEnd(directory: string): void {
  const database = openDatabase(directory);
  database.exec("PRAGMA busy_timeout = 5000");
  database.exec("UPDATE event_bus_execution_runtime SET source_lease_until = 1 WHERE source_lease_until IS NOT NULL");
  database.close();
}

test("an emission that was there before brings what came of it into the execution of its new parent", async () => {
  const { directory, bus, python } = open();
  bus.subscription("work").handler(Task, ({ data }) => OrderPaid(order(data.n)));
  bus.subscription("email").handler(OrderPaid, ({ data }) => Anything({ tenant: "t", key: data.order_id }));
  bus.subscription("audit").handler(Anything, () => {});
  await bus.dispatch(OrderPaid(order(0)));
  await bus.run(IDLE);
  expect(members(directory)).toEqual([]);
  void run(bus);
  const result = await python.execute(tasks(1), "people");
  expect(result).toMatchObject({ deliveries_total: 3, deliveries_acknowledged: 3 });
  expect(members(directory)).toEqual(["order.paid", "anything", "task"]);
  await expectHealth(directory);
});

test("an event that was dispatched here joins the execution that brings it again, as it is", async () => {
  const { directory, bus, python } = open();
  const id = "11111111-2222-3333-4444-555555555555";
  bus.subscription("work").handler(Task, () => {});
  await bus.dispatch(Task({ n: 0 }, { id }));
  await bus.run(IDLE);
  const result = await python.execute([{ n: 0, event_id: id }], "people");
  expect(result).toMatchObject({ deliveries_inserted: 0, deliveries_deduplicated: 1, deliveries_acknowledged: 1 });
  expect(await bus.dispatch(Task({ n: 0 }, { id }))).toMatchObject({ inserted: [false] });
  await expectHealth(directory);
});

test("neither language purges what belongs to an execution, and both purge the rest", async () => {
  const { directory, bus, python } = open();
  const work = bus.subscription("work").handler(Task, ({ data }) => {
    if (data.n === 1) throw new Reject("never");
  });
  void run(bus);
  await python.execute(tasks(3), "people");
  const untracked = async (): Promise<void> => {
    const before = await work.stats();
    await bus.dispatch(Task({ n: 0 }));
    await bus.dispatch(Task({ n: 1 }));
    await until(async () => (await work.stats()).failed > before.failed && (await work.stats()).acked > before.acked);
  };
  const kept = { ready: 0, processing: 0, acked: 2, failed: 1 };
  await untracked();
  await until(
    async () => (await work.purge({ olderThanMs: 0, includeFailed: true })) > 0 && (await work.stats()).failed === 1,
  );
  expect(await work.stats()).toEqual(kept);
  expect(await work.purgeFailed({})).toBe(0);

  await untracked();
  const queue = new PythonQueue(directory, { name: "__bus__:default:work" });
  await until(async () => (await queue.call("purge", 0, { include_failed: true })) === 2);
  expect(await work.stats()).toEqual(kept);
  expect(await queue.stats()).toEqual(kept);
  expect(await python.execute(tasks(3), "people")).toMatchObject({ deliveries_total: 3, deliveries_failed: 1 });
  await expectHealth(directory);
});

test("a checkpoint of Python stays where it is while we work in its file", async () => {
  const { directory, bus, python } = open();
  const broken = [...tasks(3), { n: 3, breaks: true }];
  await expect(python.ingest(broken, "people", { batch_size: 2 })).rejects.toMatchObject({ name: "ValueError" });
  const checkpoint = await python.call("inspect", "people");
  expect(checkpoint).toMatchObject({ cursor: "2", source_fingerprint: "v1", version: 1, items_committed: 2 });

  const handled: number[] = [];
  const work = bus.subscription("work").handler(Task, ({ data }) => void handled.push(data.n));
  await bus.run(IDLE);
  await until(async () => (await work.purge({ olderThanMs: 0 })) > 0);
  await bus.close();
  await openQueue({ location: directory }).vacuum();
  expect(await python.call("inspect", "people")).toEqual(checkpoint);
  expect(await python.ingest(tasks(5), "people", { batch_size: 2 })).toMatchObject({ items_read: 3 });
  const again = openBus({ location: directory, topology });
  again.subscription("work").handler(Task, ({ data }) => void handled.push(data.n));
  await again.run(IDLE);
  expect(handled).toEqual([0, 1, 2, 3, 4]);
  await expectHealth(directory);
});
