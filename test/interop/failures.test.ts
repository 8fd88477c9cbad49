import { expect, test } from "vitest";
import { BusTopology } from "../../dist/bus/index.js";
import { Reject, Retry, RetryPolicy } from "../../dist/index.js";
import { IDLE, openBus, passTime } from "../support/bus.ts";
import { faultsOf, select } from "../support/inspect.ts";
import { tempDirectory } from "../support/temp.ts";
import { type Does, OrderPaid, Task, Unheard } from "./support/events.ts";
import { PythonBus, type PythonFailedDelivery, type PythonRunOptions } from "./support/python-bus.ts";

const routes = { work: ["task"], other: ["only.python", "only.node"] };
const topology = new BusTopology({ work: [Task], other: ["only.python", "only.node"] });

function open(max_retries = 0) {
  const directory = tempDirectory();
  const bus = openBus({ location: directory, topology, maxRetries: max_retries });
  bus.on("event:failed", () => {});
  bus.on("error", () => {});
  return { directory, bus, python: new PythonBus(directory, { routes, delivery: { max_retries } }) };
}

/** Why a delivery ended, in the words of either language. */
function causes(letters: readonly { reason: unknown; category?: unknown; attempts: number }[]): object[] {
  return letters.map(({ reason, category, attempts }) => ({ reason, category: category ?? undefined, attempts }));
}

interface Failure {
  readonly does: Does;
  readonly cause: { readonly reason: string; readonly category?: string };
  readonly lastError: string;
  readonly options?: PythonRunOptions;
}

const failures: readonly Failure[] = [
  { does: { raise: "no luck" }, cause: { reason: "retries_exhausted" }, lastError: "no luck" },
  {
    does: { permanent: "no use" },
    cause: { reason: "permanent_handler_error" },
    lastError: "permanent failure: no use",
  },
  {
    does: { reject: "no such domain", category: "address" },
    cause: { reason: "rejected", category: "address" },
    lastError: "no such domain",
  },
  { does: { retry: "later" }, cause: { reason: "retries_exhausted" }, lastError: "later" },
  {
    does: { return: 7 },
    cause: { reason: "permanent_handler_error" },
    lastError: "handler 'handle' returned unsupported result type 'int'; expected None or BaseEvent",
  },
  {
    does: {},
    cause: { reason: "handler_timeout" },
    lastError: "handler timeout after 0.01 seconds",
    options: { timeout: 0.01 },
  },
];

for (const { does, cause, lastError, options } of failures) {
  const what = `${Object.keys(does)[0] ?? "wait"}: ${cause.reason}`;
  test(`an event that failed in Python (${what}) is a dead letter here, and can be replayed from here`, async () => {
    const { bus, python, directory } = open();
    await bus.dispatch(Task({ n: 1, does }));
    await python.run(["work"], options);
    const work = bus.subscription("work").handler(Task, () => {});
    const letters = await work.listFailed();
    expect(causes(letters)).toEqual([{ category: undefined, ...cause, attempts: 1 }]);
    expect(letters).toMatchObject([{ lastError, decoded: true, event: { type: "task", data: { n: 1, does } } }]);
    expect(causes(await python.listFailed("work"))).toEqual(causes(letters));

    expect(await work.retryFailed({ id: letters[0]?.id ?? 0 })).toBe(1);
    await bus.run(IDLE);
    expect(await work.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
    expect(faultsOf(directory)).toEqual([]);
  });
}

test("events that failed here are dead letters in Python with the same causes, and can be replayed from there", async () => {
  const { bus, python, directory } = open();
  class NoUse extends Error {}
  const throws = [
    new Error("no luck"),
    new NoUse("no use"),
    new Reject("no such domain", { category: "address" }),
    new Retry({ reason: "later" }),
  ];
  const work = bus.subscription("work", { permanentErrors: [NoUse] }).handler(Task, ({ data }) => {
    throw throws[data.n];
  });
  for (const n of throws.keys()) await bus.dispatch(Task({ n }));
  await bus.run(IDLE);
  const letters = await python.listFailed("work");
  expect(letters.map(({ reason, category }) => [reason, category])).toEqual([
    ["retries_exhausted", null],
    ["permanent_handler_error", null],
    ["rejected", "address"],
    ["retries_exhausted", null],
  ]);
  expect(letters.map(({ last_error }) => last_error)).toEqual(
    (await work.listFailed()).map(({ lastError }) => lastError),
  );
  expect(letters.every(({ event_id, inspection_error }) => event_id !== null && inspection_error === null)).toBe(true);

  for (const { id } of letters) await python.retryFailed("work", id);
  expect(await work.stats()).toEqual({ ready: 4, processing: 0, acked: 0, failed: 0 });
  const handled = await python.run(["work"]);
  expect(handled.map(({ attempt, data }) => [attempt, data["n"]])).toEqual([0, 1, 2, 3].map((n) => [1, n]));
  expect(await work.stats()).toEqual({ ready: 0, processing: 0, acked: 4, failed: 0 });
  expect(faultsOf(directory)).toEqual([]);
});

test("a handler that overran its time here did so for Python, too", async () => {
  const { bus, python } = open();
  bus.subscription("work", { timeoutMs: 20, graceMs: 0 }).handler(Task, () => new Promise(() => {}));
  await bus.dispatch(Task({ n: 1 }));
  await bus.run({ idleTimeoutMs: 200 });
  expect(await python.listFailed("work")).toMatchObject([{ reason: "handler_timeout" }]);
});

test("an event that waits for its retry waits in the other language, too, and its attempts go on", async () => {
  const { bus, python, directory } = open(3);
  await bus.dispatch(Task({ n: 1, does: { retry: "later", after: 3600, until: 1 } }));
  expect((await python.run(["work"])).map(({ attempt }) => attempt)).toEqual([1]);
  const attempts: number[] = [];
  const retry = RetryPolicy.fixed(3_600_000);
  bus.subscription("work", { retry }).handler(Task, (_, { attempt }) => {
    attempts.push(attempt);
    throw new Error("once more");
  });
  await bus.run(IDLE);
  expect(attempts).toEqual([]);
  passTime(directory);
  await bus.run(IDLE);
  expect(attempts).toEqual([2]);
  expect(await python.run(["work"])).toEqual([]);
  passTime(directory);
  expect((await python.run(["work"])).map(({ attempt }) => attempt)).toEqual([3]);
  expect(await bus.subscription("work").stats()).toMatchObject({ acked: 1 });
});

test("a retry policy of either language replaces the budget that the other one wrote", async () => {
  const { bus, python, directory } = open(0);
  const budgets = () => select(directory, "SELECT max_attempts AS budget, attempts, status FROM messages ORDER BY id");
  await bus.dispatch(Task({ n: 1, does: { raise: "again" } }));
  const handled = await python.run(["work"], { retry: { max_attempts: 3, delay: 0 } });
  expect(handled.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
  expect(budgets()).toEqual([{ budget: 3, attempts: 3, status: 3 }]);

  await python.dispatch("task", { n: 2 });
  const attempts: number[] = [];
  bus.subscription("work", { retry: RetryPolicy.immediate({ maxAttempts: 2 }) }).handler(Task, (_, { attempt }) => {
    attempts.push(attempt);
    throw new Error("again");
  });
  await bus.run(IDLE);
  expect(attempts).toEqual([1, 2]);
  expect(budgets()[1]).toEqual({ budget: 2, attempts: 2, status: 3 });
});

test("a type that only Python knows is left to Python, for a while", async () => {
  const { python, directory } = open();
  await python.dispatch("only.python", { n: 1 });
  const bus = openBus({ location: directory, topology: new BusTopology({ other: [Unheard] }) });
  const told: string[] = [];
  bus.on("error", ({ error }) => told.push(String(error)));
  const other = bus.subscription("other").handler(Unheard, () => {});
  await bus.run(IDLE);
  expect(told.join()).toContain("only.python");
  passTime(directory);
  expect((await python.run(["other"])).map(({ attempt }) => attempt)).toEqual([1]);
  expect(await other.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
});

test("a type that only we know is a dead letter in Python at once, which can be replayed from here", async () => {
  const { directory, python, bus } = open();
  await bus.dispatch(Unheard({ n: 1 }));
  await python.run(["other"]);
  const expected: Partial<PythonFailedDelivery> = { reason: "unknown_event_type", type: "only.node", attempts: 1 };
  expect(await python.listFailed("other")).toMatchObject([expected]);
  const mine = openBus({ location: directory, topology: new BusTopology({ other: [Unheard] }) });
  const got: unknown[] = [];
  const other = mine.subscription("other").handler(Unheard, ({ data }) => void got.push(data));
  expect(await other.retryFailed({ reason: "unknown_event_type" })).toBe(1);
  await mine.run(IDLE);
  expect(got).toEqual([{ n: 1 }]);
});

test("a type that a Python process has no handler for is a dead letter at once, even if others handle it", async () => {
  const directory = tempDirectory();
  const python = new PythonBus(directory, { routes: { work: ["task", "order.paid"] } });
  const bus = openBus({ location: directory, topology: new BusTopology({ work: [Task, OrderPaid] }) });
  await bus.dispatch(OrderPaid({ order_id: "A-7", cents: 1 }));
  await python.run(["work"], { types: ["task"] });
  const got: unknown[] = [];
  const work = bus.subscription("work").handler("*", ({ data }) => void got.push(data));
  expect(causes(await work.listFailed())).toEqual([{ reason: "no_handler", category: undefined, attempts: 1 }]);
  expect(await work.retryFailed({ reason: "no_handler" })).toBe(1);
  await bus.run(IDLE);
  expect(got).toEqual([{ order_id: "A-7", cents: 1 }]);
});
