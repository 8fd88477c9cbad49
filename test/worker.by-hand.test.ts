import { Worker } from "localqueue";
import { expect, test } from "vitest";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";
import { gate, listenTo, start } from "./support/worker.ts";

test("jobs that are claimed by hand can be settled while workers run, and are none of theirs", async () => {
  const queue = openQueue<string>();
  await queue.putMany(["by hand", "nacked by hand", "the worker's"]);
  const [first, second] = await queue.getMany(2);
  if (first === undefined || second === undefined) throw new Error("nothing was delivered");
  const finish = gate();
  const workers = [1, 2].map(() => new Worker(queue, () => finish.passed));
  const told = workers.map((worker) => listenTo(worker));
  for (const worker of workers) void start(worker);
  await until(async () => (await queue.stats()).processing === 3);
  await queue.ack(first);
  await queue.nack(second, { delayMs: 60_000 });
  expect(await queue.stats()).toMatchObject({ ready: 1, processing: 1, acked: 1 });
  await expect(queue.ack(first)).rejects.toMatchObject({ name: "LeaseExpiredError" });
  finish.open();
  await until(() => told.flat().length > 0);
  expect(told.flat()).toEqual([["job:acked", "the worker's"]]);
  expect(await queue.stats()).toMatchObject({ ready: 1, processing: 0, acked: 2 });
});

test("a handler that has ended is not aborted any more", async () => {
  const queue = openQueue<string>();
  await queue.putMany(["ends", "hangs"]);
  const signals: Record<string, AbortSignal> = {};
  const worker = new Worker(
    queue,
    (job, { signal }) => {
      signals[job.data] = signal;
      return job.data === "ends" ? undefined : new Promise(() => {});
    },
    { concurrency: 2, graceMs: 0 },
  );
  void start(worker);
  await until(async () => (await queue.stats()).acked === 1 && Object.keys(signals).length === 2);
  await worker.stop();
  expect([signals["ends"]?.aborted, signals["hangs"]?.aborted]).toEqual([false, true]);
});

test("of two workers on a queue the one whose handler settles its job by hand tells of it", async () => {
  const queue = openQueue<number>();
  const workers = [1, 2].map(() => new Worker(queue, (job) => queue.ack(job)));
  const told = workers.map((worker) => listenTo(worker));
  const seen: number[][] = [[], []];
  for (const [index, worker] of workers.entries()) worker.on("job:acked", ({ job }) => seen[index]?.push(job.id));
  for (const worker of workers) void start(worker);
  await queue.putMany(Array.from({ length: 50 }, (_, n) => n));
  await until(() => told.flat().length >= 50);
  expect(told.flat().map(([name]) => name)).toEqual(Array(50).fill("job:acked"));
  expect(new Set(seen.flat()).size).toBe(50);
  expect(await queue.stats()).toMatchObject({ acked: 50 });
});
