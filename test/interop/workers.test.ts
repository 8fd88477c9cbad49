import { Reject, RetryPolicy, Worker } from "localqueue";
import { expect, onTestFinished, test } from "vitest";
import { openQueue } from "../support/queue.ts";
import { until } from "../support/until.ts";
import { PythonQueue } from "./support/python.ts";
import { sharedDirectory } from "./support/sides.ts";

const ERRORS = { refused: "never", failing: "again" };

test("what a worker of Python gave up, or for good, is read here", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory, { max_retries: 0 });
  const queue = openQueue<string>({ location: directory });
  for (const data of ["fine", "refused", "failing"]) await queue.put(data, { maxRetries: 0 });
  for (let i = 0; i < 3; i++) await until(() => python.call<boolean>("work_once", ERRORS));
  expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 2 });
  expect(await queue.listFailed()).toMatchObject([
    { data: "refused", reason: "permanent_handler_error", lastError: "ValueError: no refused", attempts: 1 },
    { data: "failing", reason: "retries_exhausted", lastError: "RuntimeError: no failing", attempts: 1 },
  ]);
  expect(await queue.retryFailed({ reason: "permanent_handler_error" })).toBe(1);
  expect(await queue.getNowait()).toMatchObject({ data: "refused", attempt: 1 });
});

test("what a worker of ours gave up, or for good, is read in Python", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory, { max_retries: 0 });
  const queue = openQueue<string>({ location: directory });
  for (const data of ["fine", "rejected", "permanent", "failing"]) await python.put(data);
  const handler = ({ data }: { data: string }): void => {
    if (data === "rejected") throw new Reject("no such page", { category: "gone" });
    if (data === "permanent") throw new TypeError("never");
    if (data === "failing") throw new Error("no");
  };
  const worker = new Worker(queue, handler, { permanentErrors: [TypeError] });
  worker.on("job:failed", () => {});
  for (let i = 0; i < 4; i++) expect(await worker.runOnce()).toBe(true);
  expect(await python.listFailed()).toMatchObject([
    { text: '"rejected"', reason: "rejected", category: "gone", last_error: "Reject: no such page", attempts: 1 },
    { text: '"permanent"', reason: "permanent_handler_error", category: null, last_error: "TypeError: never" },
    { text: '"failing"', reason: "retries_exhausted", category: null, last_error: "Error: no" },
  ]);
});

test("a job goes from worker to worker of both languages until one of them succeeds", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory);
  const queue = openQueue<string>({ location: directory });
  const id = await python.put("failing");
  await until(() => python.call<boolean>("work_once", ERRORS));
  const attempts: number[] = [];
  const worker = new Worker(
    queue,
    ({ attempt }) => {
      attempts.push(attempt);
      throw new Error("not here either");
    },
    { retry: RetryPolicy.immediate() },
  );
  expect(await worker.runOnce()).toBe(true);
  expect(attempts).toEqual([2]);
  await until(() => python.call<boolean>("work_once"));
  expect(await queue.find({ id })).toMatchObject({ state: "acked", attempts: 3 });
});

test("a lease that our worker renews keeps the job from Python for as long as the handler runs", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory);
  const queue = openQueue({ location: directory, leaseMs: 600 });
  await python.put("long");
  let started = false;
  let finish = (): void => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const worker = new Worker(queue, () => {
    started = true;
    return finished;
  });
  const running = worker.runOnce();
  await until(() => started);
  const end = Date.now() + 1500;
  while (Date.now() < end) {
    expect(await python.call("reclaim")).toBe(0);
    await expect(python.get({ timeout: 0.05 })).rejects.toMatchObject({ name: "Empty" });
  }
  finish();
  expect(await running).toBe(true);
  expect(await python.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
});

test("a retention of ours also removes what Python finished", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory);
  const queue = openQueue({ location: directory, retention: { ackedMs: 100, failedMs: 200 } });
  for (const data of ["fine", "refused"]) {
    await python.put(data);
    await until(() => python.call<boolean>("work_once", ERRORS));
  }
  const worker = new Worker(queue, () => {});
  const running = worker.run();
  onTestFinished(async () => {
    await worker.stop();
    await running;
  });
  await until(async () => {
    const { acked, failed } = await python.stats();
    return acked + failed === 0;
  }, 20_000);
});
