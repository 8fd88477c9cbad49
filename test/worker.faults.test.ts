import { renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { StorageError, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { lacks } from "./support/capabilities.ts";
import { lockDatabase, refuse } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";
import { drained, gate, listenTo, start } from "./support/worker.ts";

const fault = expect.objectContaining({ name: "StorageError", code: "IO", outcome: "failed" });

describe("a worker whose database is locked", () => {
  test("settles and goes on when the lock is gone", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location, leaseMs: 300, maxRetries: 0 });
    await queue.putMany([1, 2]);
    const finish = gate();
    const worker = new Worker(queue, () => finish.passed, { heartbeatMs: 100 });
    const told = listenTo(worker);
    void start(worker);
    await until(async () => (await queue.stats()).processing === 1);
    const unlock = lockDatabase(location);
    finish.open();
    const lockedUntil = performance.now() + 1_000;
    await until(() => performance.now() > lockedUntil);
    unlock();
    await drained(queue);
    await until(() => told.length === 2);
    expect(told).toEqual([
      ["job:acked", 1],
      ["job:acked", 2],
    ]);
  });
});

describe("a fault of the database that passes", () => {
  test("while jobs are claimed is reported and waited out, once for all slots", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location });
    await queue.putMany(Array.from({ length: 20 }, (_, n) => n));
    const mend = refuse(location, 1);
    const worker = new Worker(queue, () => {}, { concurrency: 10 });
    const told = listenTo(worker);
    void start(worker);
    await until(() => told.length === 3);
    mend();
    await drained(queue);
    await until(() => told.length >= 23);
    const errors = told.filter(([name]) => name === "error");
    expect(errors.length).toBeLessThanOrEqual(4);
    for (const error of errors) expect(error).toEqual(["error", fault]);
    expect(await queue.stats()).toMatchObject({ acked: 20 });
  });

  test("while a job is settled costs nothing: its outcome is recorded afterwards", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location, maxRetries: 0 });
    await queue.put(1);
    const mend = refuse(location, 2);
    const runs: number[] = [];
    const worker = new Worker(queue, (job) => void runs.push(job.data));
    const told = listenTo(worker);
    void start(worker);
    await until(() => told.length === 2);
    mend();
    await drained(queue);
    await until(() => told.some(([name]) => name === "job:acked"));
    expect(runs).toEqual([1]);
    expect(told.filter(([name]) => name !== "error")).toEqual([["job:acked", 1]]);
    expect(told[0]).toEqual(["error", fault]);
  });

  test("does not pass in time for the stop: the job keeps its lease", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location });
    await queue.put(1);
    const mend = refuse(location, 2);
    const worker = new Worker(queue, () => {}, { graceMs: 100 });
    const told = listenTo(worker);
    const running = start(worker);
    await until(() => told.length === 1);
    const started = performance.now();
    await worker.stop();
    await running;
    expect(performance.now() - started).toBeLessThan(2_500);
    mend();
    expect(told.every(([name]) => name === "error")).toBe(true);
    expect(await queue.stats()).toMatchObject({ processing: 1 });
  });

  test("rejects a runOnce that cannot claim", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location });
    await queue.put(1);
    const mend = refuse(location, 1);
    await expect(new Worker(queue, () => {}).runOnce()).rejects.toEqual(fault);
    mend();
    expect(await queue.stats()).toMatchObject({ ready: 1 });
  });

  test("rejects a runOnce that could not settle for as long as the lease", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location, leaseMs: 400 });
    await queue.put(1);
    const mend = refuse(location, 2);
    const worker = new Worker(queue, () => {});
    const told = listenTo(worker);
    await expect(worker.runOnce()).rejects.toEqual(fault);
    expect(told.length).toBeGreaterThan(0);
    mend();
    expect((await queue.get({ timeoutMs: 5_000 })).attempt).toBe(2);
  });
});

describe.skipIf(lacks("files"))("a worker whose database is lost for good", () => {
  test("ends with the reason when the files were replaced", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location });
    await queue.put(1);
    const worker = new Worker(queue, () => {}, { concurrency: 3 });
    listenTo(worker);
    const running = worker.run();
    await drained(queue);
    renameSync(path.join(location, "localqueue.db"), path.join(location, "elsewhere.db"));
    writeFileSync(path.join(location, "localqueue.db"), "");
    await expect(running).rejects.toMatchObject({ name: "StorageError", code: "FILE_REPLACED" });
  });

  test("ends with the reason when the database cannot be opened, and may be started again", async () => {
    const file = path.join(tempDirectory(), "a-file");
    writeFileSync(file, "no directory");
    const worker = new Worker(openQueue({ location: file }), () => {}, { concurrency: 3 });
    await expect(worker.run()).rejects.toThrow(StorageError);
    await expect(worker.runOnce()).rejects.toMatchObject({ code: "BAD_LOCATION" });
    await expect(worker.run()).rejects.toMatchObject({ code: "BAD_LOCATION" });
  });
});
