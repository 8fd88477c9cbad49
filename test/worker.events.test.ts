import { setTimeout as sleep } from "node:timers/promises";
import { type Job, RetryPolicy, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { hostile, thenable, throwing, unreadableError } from "./support/hostile.ts";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";
import { collectWarnings, drained, listenTo, start } from "./support/worker.ts";

describe("a listener", () => {
  test("is called for each event with the job, until it is taken off", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2]);
    const worker = new Worker(queue, () => {});
    const jobs: Job<number>[] = [];
    const off = worker.on("job:acked", ({ job }) => jobs.push(job));
    await worker.runOnce();
    off();
    off();
    await worker.runOnce();
    expect(jobs.map(({ data }) => data)).toEqual([1]);
  });

  test("that was added twice is called twice, and taken off one at a time", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2]);
    const worker = new Worker(queue, () => {});
    let calls = 0;
    const listener = (): number => ++calls;
    const off = worker.on("job:acked", listener);
    worker.on("job:acked", listener);
    await worker.runOnce();
    expect(calls).toBe(2);
    off();
    await worker.runOnce();
    expect(calls).toBe(3);
  });

  test("may take itself off, or add another, while it is called", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2]);
    const worker = new Worker(queue, () => {});
    const calls: string[] = [];
    const off = worker.on("job:acked", () => {
      calls.push("first");
      off();
      worker.on("job:acked", () => calls.push("third"));
    });
    worker.on("job:acked", () => calls.push("second"));
    await worker.runOnce();
    expect(calls).toEqual(["first", "second"]);
    await worker.runOnce();
    expect(calls).toEqual(["first", "second", "second", "third"]);
  });

  test("that throws, or rejects, breaks nothing: it becomes a warning", async () => {
    const warnings = collectWarnings();
    const queue = openQueue<number>();
    await queue.putMany([1, 2]);
    const worker = new Worker(queue, () => {});
    worker.on("job:acked", () => {
      throw new TypeError("in the listener");
    });
    worker.on("job:acked", () => Promise.reject(null));
    const told = listenTo(worker);
    void start(worker);
    await drained(queue);
    await until(() => warnings.length === 4);
    expect(told).toEqual([
      ["job:acked", 1],
      ["job:acked", 2],
    ]);
    expect(warnings[0]).toMatchObject({
      code: "LOCALQUEUE_LISTENER_FAILED",
      message: 'A listener of "job:acked" failed: TypeError: in the listener',
    });
    expect(warnings[1]).toMatchObject({ message: 'A listener of "job:acked" failed: null' });
  });

  test("for errors that throws does not make matters worse", async () => {
    const warnings = collectWarnings();
    const queue = openQueue<number>({
      serializer: { encode: () => new Uint8Array(), decode: () => Promise.reject(5) },
    });
    await queue.put(1);
    const worker = new Worker(queue, () => {});
    worker.on("error", () => {
      throw new Error("again");
    });
    expect(await worker.runOnce()).toBe(false);
    await until(() => warnings.length === 1);
    expect(await queue.stats()).toMatchObject({ failed: 1 });
  });
});

describe("whatever a handler throws", () => {
  const boom = new Error("boom");

  test.each<[string, () => unknown]>([
    ["null", throwing(null)],
    ["undefined", throwing(undefined)],
    ["a symbol", throwing(Symbol("boom"))],
    ["a frozen error", throwing(Object.freeze(new Error("boom")))],
    ["an error that cannot be read", throwing(unreadableError())],
    ["a proxy that throws at everything", throwing(hostile())],
    ["a rejection with nothing", () => Promise.reject()],
    ["a thenable that throws", () => thenable(throwing(boom))],
    ["a thenable that cannot be read", () => hostile()],
    ["a thenable that rejects and then resolves", () => thenable((resolve, reject) => [reject(boom), resolve()])],
  ])("%s: the job is tried again, the worker goes on", async (_, handler) => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2]);
    const worker = new Worker(queue, (job) => (job.data === 1 && job.attempt < 3 ? handler() : undefined), {
      retry: RetryPolicy.immediate(),
      permanentErrors: [TypeError],
    });
    const told = listenTo(worker);
    void start(worker);
    await drained(queue);
    await until(() => told.length === 4);
    expect(told.filter(([name]) => name === "job:retried")).toHaveLength(2);
    expect(await queue.stats()).toMatchObject({ acked: 2 });
  });
});

test("a listener that blocks for a while does not lose the next job", async () => {
  const queue = openQueue<number>({ leaseMs: 100, maxRetries: 0 });
  await queue.putMany([1, 2, 3]);
  const worker = new Worker(queue, () => sleep(5));
  worker.on("job:acked", () => {
    const end = performance.now() + 300;
    while (performance.now() < end);
  });
  const told = listenTo(worker);
  void start(worker);
  await drained(queue);
  await until(() => told.length >= 3);
  expect(await queue.stats()).toMatchObject({ acked: 3, failed: 0 });
});
