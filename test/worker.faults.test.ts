import { renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { lockDatabase, openDatabase } from "./support/database.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";
import { drained, gate, listenTo, start } from "./support/worker.ts";

/** Makes every write of a job fail as if the disk were full, until the function that is returned is called. */
function fillDisk(directory: string): () => void {
  const database = openDatabase(directory);
  database.exec(
    "CREATE TRIGGER full BEFORE UPDATE ON messages BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END",
  );
  return () => {
    database.exec("DROP TRIGGER full");
    database.close();
  };
}

describe("a worker whose database is locked", () => {
  test("settles and goes on when the lock is gone", async () => {
    const directory = tempDirectory();
    const queue = openQueue<number>({ directory, leaseMs: 300, maxRetries: 0 });
    await queue.putMany([1, 2]);
    const finish = gate();
    const worker = new Worker(queue, () => finish.passed, { heartbeatMs: 100 });
    const told = listenTo(worker);
    void start(worker);
    await until(async () => (await queue.stats()).processing === 1);
    const unlock = lockDatabase(directory);
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

describe("a worker whose files were replaced", () => {
  test("ends with the reason", async () => {
    const directory = tempDirectory();
    const queue = openQueue<number>({ directory });
    await queue.put(1);
    const worker = new Worker(queue, () => {});
    listenTo(worker);
    await worker.runOnce();
    const running = worker.run();
    await queue.stats();
    renameSync(path.join(directory, "localqueue.db"), path.join(directory, "elsewhere.db"));
    writeFileSync(path.join(directory, "localqueue.db"), "");
    await expect(running).rejects.toMatchObject({ name: "StorageError", code: "FILE_REPLACED" });
  });
});

describe("a worker whose database cannot be opened", () => {
  test("ends with the reason", async () => {
    const file = path.join(tempDirectory(), "a-file");
    writeFileSync(file, "no directory");
    const worker = new Worker(openQueue({ directory: file }), () => {}, { concurrency: 3 });
    await expect(worker.run()).rejects.toMatchObject({ name: "StorageError", code: "BAD_LOCATION" });
    await expect(worker.runOnce()).rejects.toMatchObject({ code: "BAD_LOCATION" });
    await expect(worker.run()).rejects.toMatchObject({ code: "BAD_LOCATION" });
  });

  test("for the moment waits until it can, and says what is wrong meanwhile", async () => {
    const directory = tempDirectory();
    const file = path.join(directory, "localqueue.db");
    writeFileSync(file, "");
    expect(fillDisk).toBeDefined();
  });
});
