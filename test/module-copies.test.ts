import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker as Thread } from "node:worker_threads";
import * as localqueue from "localqueue";
import * as bus from "localqueue/bus";
import { expect, onTestFinished, test } from "vitest";
import { readEnvelope, restore, writeEnvelope } from "../dist/bus/envelope.js";
import { emitted, identityOf } from "../dist/bus/event.js";
import { definitionsOf, isTopology } from "../dist/bus/topology.js";
import { faultsOf, select } from "./support/inspect.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

type Package = typeof localqueue & typeof bus;

const root = fileURLToPath(new URL("..", import.meta.url));

/** The package once more, as a dependency that is installed twice would bring it. */
async function secondCopy(): Promise<Package> {
  const directory = tempDirectory();
  fs.cpSync(path.join(root, "dist"), path.join(directory, "dist"), { recursive: true });
  fs.writeFileSync(path.join(directory, "package.json"), '{ "type": "module" }');
  fs.symlinkSync(path.join(root, "node_modules"), path.join(directory, "node_modules"));
  const load = (entry: string) => import(pathToFileURL(path.join(directory, "dist", entry)).href);
  const copy: Package = { ...(await load("index.js")), ...(await load("bus/index.js")) };
  expect(copy.SimpleQueue).not.toBe(localqueue.SimpleQueue);
  expect(copy.defineEvent).not.toBe(bus.defineEvent);
  return copy;
}

/** Counts the threads that are started from now on. */
function countThreads(): { started: number } {
  const count = { started: 0 };
  const onWorker = (): void => {
    count.started++;
  };
  process.on("worker", onWorker);
  onTestFinished(() => void process.off("worker", onWorker));
  return count;
}

test("two copies of the package in one process share a database without losing or doubling anything", async () => {
  const location = tempDirectory();
  const threads = countThreads();
  const queues = [new localqueue.SimpleQueue<string>(location), new (await secondCopy()).SimpleQueue<string>(location)];
  const perQueue = 1_000;
  const seen: string[][] = [];
  let acked = 0;
  const produce = async (queue: localqueue.SimpleQueue<string>, name: number): Promise<void> => {
    for (let i = 0; i < perQueue; i += 10) {
      await Promise.all(Array.from({ length: 10 }, (_, more) => queue.put(`${name}-${i + more}`)));
    }
  };
  const done = new AbortController();
  const consume = async (queue: localqueue.SimpleQueue<string>): Promise<void> => {
    try {
      for (;;) {
        // Without a time-out: two busy writers may keep each other from the lock for a while, which would be BUSY then.
        for (const job of await queue.getMany(7, { signal: done.signal })) {
          seen.push([job.data, `${job.id}`, job.receipt]);
          await queue.ack(job);
          if (++acked === 2 * perQueue) done.abort();
        }
      }
    } catch (error) {
      if (!done.signal.aborted) throw error;
    }
  };
  await Promise.all(queues.flatMap((queue, name) => [produce(queue, name), consume(queue), consume(queue)]));
  await Promise.all(queues.map((queue) => queue.close()));
  // An engine each, and perhaps a thread beside it.
  expect(threads.started).toBeGreaterThanOrEqual(2);
  expect(threads.started).toBeLessThanOrEqual(4);
  expect(seen.length).toBe(2 * perQueue);
  for (const column of [0, 1, 2]) expect(new Set(seen.map((row) => row[column])).size).toBe(2 * perQueue);
  expect(select(location, "SELECT status, attempts, count(*) AS jobs FROM messages GROUP BY 1, 2")).toEqual([
    { status: 2, attempts: 1, jobs: 2 * perQueue },
  ]);
  expect(faultsOf(location)).toEqual([]);
});

test("a job that was claimed through one copy of the package can be acknowledged through the other", async () => {
  const location = tempDirectory();
  await using here = new localqueue.SimpleQueue(location);
  await using there = new (await secondCopy()).SimpleQueue(location);
  await here.put("work");
  const job = await there.get({ timeoutMs: 5_000 });
  await here.ack(job);
  await expect(there.ack(job)).rejects.toMatchObject({ name: "LeaseExpiredError", code: "LEASE_EXPIRED" });
});

test("items, retry policies and what handlers throw are recognised when they come from another copy", async () => {
  const location = tempDirectory();
  const other = await secondCopy();
  await using queue = new localqueue.SimpleQueue<{ ending?: string }>(location);
  await queue.putMany([
    new other.EnqueueItem({ ending: "retry" }, { jobId: "a" }),
    new other.EnqueueItem({ ending: "reject" }, { jobId: "b", maxRetries: 9 }),
    new other.EnqueueItem({ ending: "throw" }, { jobId: "c", maxRetries: 9 }),
  ]);
  const events: object[] = [];
  await using worker = new localqueue.Worker(
    queue,
    ({ data }) => {
      if (data.ending === "retry") throw new other.Retry({ delayMs: 3_600_000, reason: "later" });
      if (data.ending === "reject") throw new other.Reject("never", { category: "spam" });
      throw new Error("no");
    },
    { retry: other.RetryPolicy.fixed(7_200_000) },
  );
  worker.on("job:retried", ({ job, delayMs }) => events.push([job.jobId, "retried", delayMs]));
  worker.on("job:failed", ({ job, reason }) => events.push([job.jobId, "failed", reason]));
  const running = worker.run();
  await until(() => events.length === 3);
  await worker.stop();
  await running;
  expect(events.sort()).toEqual([
    ["a", "retried", 3_600_000],
    ["b", "failed", "rejected"],
    ["c", "retried", 7_200_000],
  ]);
  expect(select(location, "SELECT job_id, status, failure_category, max_attempts FROM messages ORDER BY id")).toEqual([
    { job_id: "a", status: 0, failure_category: null, max_attempts: 4 },
    { job_id: "b", status: 3, failure_category: "spam", max_attempts: 10 },
    { job_id: "c", status: 0, failure_category: null, max_attempts: 10 },
  ]);
});

test("events, their definitions and topologies are recognised when they come from another copy", async () => {
  const other = await secondCopy();
  const length: bus.StandardSchema<{ text: string }, { text: number }> = {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: (value) => ({ value: { text: (value as { text: string }).text.length } }),
    },
  };
  const Theirs = other.defineEvent("measured", length, { identity: ["text"] });
  const Ours = bus.defineEvent("measured", length, { identity: ["text"] });
  const event = Theirs({ text: "four" });
  expect(Ours.from(event, { text: "five" })).toMatchObject({ correlationId: event.id, causationId: event.id });
  expect(emitted(event, Ours({ text: "five" })).causationId).not.toBe(event.causationId);
  expect(identityOf(event)).toEqual(identityOf(Ours({ text: "four" })));
  expect(restore(readEnvelope(writeEnvelope(event)), Theirs)).toMatchObject({ id: event.id, data: { text: 4 } });

  expect(new bus.BusTopology({ email: [Theirs] }).subscriptionsFor("measured")).toEqual(["email"]);
  const topology = new other.BusTopology({ email: [Ours] });
  expect(isTopology(topology)).toBe(true); // of another class
  expect(definitionsOf(topology as never).get("measured")).toBe(Ours);
});

test("two threads that use the package on one database share it like two processes", async () => {
  const location = tempDirectory();
  const run = (name: string): Promise<string[][]> =>
    new Promise((resolve, reject) => {
      const thread = new Thread(new URL("./programs/thread.mjs", import.meta.url), {
        workerData: { location, name, jobs: 500, total: 1_000 },
        execArgv: [],
      });
      let result: string[][] | undefined;
      thread.on("message", (message: string[][]) => {
        result = message;
      });
      thread.on("error", reject);
      thread.on("exit", (code) => (result ? resolve(result) : reject(new Error(`the thread ended with ${code}`))));
      onTestFinished(async () => void (await thread.terminate()));
    });
  const results = (await Promise.all([run("a"), run("b")])).flat();
  expect(results.length).toBe(1_000);
  expect(new Set(results.map(([data]) => data)).size).toBe(1_000);
  expect(new Set(results.map(([, receipt]) => receipt)).size).toBe(1_000);
  expect(select(location, "SELECT status, attempts, count(*) AS jobs FROM messages GROUP BY 1, 2")).toEqual([
    { status: 2, attempts: 1, jobs: 1_000 },
  ]);
  expect(faultsOf(location)).toEqual([]);
});

test("all queues and workers on one directory share one thread, and closing the last of them ends it", async () => {
  const location = tempDirectory();
  const threads = countThreads();
  const mail = new localqueue.SimpleQueue(location, { name: "mail" });
  const print = new localqueue.SimpleQueue(pathToFileURL(`${location}/`), { name: "print" });
  const relative = new localqueue.SimpleQueue(path.relative(process.cwd(), location), { name: "mail", fsync: true });
  expect(threads.started).toBe(0);
  await Promise.all([mail.put(1), print.put(2), relative.put(3)]);
  const worker = new localqueue.Worker(print, () => {}, { concurrency: 3 });
  expect(await worker.runOnce()).toBe(true);
  expect(await mail.stats()).toMatchObject({ ready: 2 });
  expect(await print.stats()).toMatchObject({ ready: 0, acked: 1 });
  expect(threads.started).toBe(1);
  await mail.close();
  await relative.close();
  await print.put(4);
  expect(threads.started).toBe(1);
  await print.close();

  await using again = new localqueue.SimpleQueue(location, { name: "mail" });
  expect(await again.stats()).toMatchObject({ ready: 2 });
  // An engine each, and perhaps a thread beside it.
  expect(threads.started).toBeGreaterThanOrEqual(2);
  expect(threads.started).toBeLessThanOrEqual(4);
});
