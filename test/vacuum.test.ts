import { statSync } from "node:fs";
import path from "node:path";
import { Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { lockDatabase, openDatabase } from "./support/database.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { openQueue } from "./support/queue.ts";
import { rejection } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const TEXT = "x".repeat(1000);

/** A file of which nine tenths are free: jobs that were finished and then deleted. */
async function holey(directory: string): Promise<void> {
  const queue = openQueue({ location: directory });
  for (let round = 0; round < 5; round++) await queue.putMany(Array.from({ length: 1000 }, (_, i) => `${i} ${TEXT}`));
  await queue.close();
  const database = openDatabase(directory);
  database.exec("DELETE FROM messages WHERE id % 10 <> 0");
  database.exec("UPDATE localqueue_counts SET ready = 500 WHERE queue = 'default'");
  database.close();
}

function bytesOf(directory: string): number {
  const sizes = ["", "-wal"].map((end) =>
    statSync(path.join(directory, `localqueue.db${end}`), { throwIfNoEntry: false }),
  );
  return sizes.reduce((sum, stats) => sum + (stats?.size ?? 0), 0);
}

describe("vacuum", () => {
  test("makes the file on the disk smaller at once, and keeps every job", async () => {
    const directory = tempDirectory();
    await holey(directory);
    const before = bytesOf(directory);
    const rows = select(directory, "SELECT * FROM messages ORDER BY id");
    const queue = openQueue({ location: directory });
    await queue.stats();
    await queue.vacuum();
    expect(bytesOf(directory)).toBeLessThan(before / 4);
    expect(select(directory, "SELECT * FROM messages ORDER BY id")).toEqual(rows);
    expect(faultsOf(directory)).toEqual([]);
    expect((await queue.put("the next one")).id).toBe(5001);
  });

  test("is refused while a job of any queue in the file is being processed", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    const other = openQueue({ location: directory, name: "other" });
    await other.put("a job");
    const job = await other.get();
    const error = await rejection(queue.vacuum());
    expect(error).toMatchObject({ name: "StorageError", code: "BUSY", outcome: "failed" });
    expect((error as Error).message).toMatch(/there is 1 live lease, the last until \d{4}-.*Stop the workers/);
    await job.nack();
    await queue.vacuum();
    // A lease that has run out holds nobody.
    await openQueue({ location: directory, name: "other", leaseMs: 300 }).get();
    await until(async () => (await rejection(queue.vacuum().then(() => Promise.reject("done")))) === "done");
  });

  test("lets others wait meanwhile, and those who write wait no longer than it takes", async () => {
    const directory = tempDirectory();
    await holey(directory);
    const queue = openQueue({ location: directory });
    const other = openQueue({ location: directory, name: "other" });
    const vacuuming = queue.vacuum();
    const puts = Promise.all(Array.from({ length: 50 }, (_, index) => other.put(index)));
    await Promise.all([vacuuming, puts]);
    expect(await other.stats()).toMatchObject({ ready: 50 });
    const seen: unknown[] = [];
    const worker = new Worker(other, (job) => void seen.push(job.data));
    while (await worker.runOnce());
    expect(seen).toHaveLength(50);
    expect(faultsOf(directory)).toEqual([]);
  });

  test("waits for the lock", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    await queue.put("a job");
    const unlock = lockDatabase(directory);
    let done = false;
    const vacuuming = queue.vacuum().then(() => {
      done = true;
    });
    expect(await queue.stats()).toMatchObject({ ready: 1 });
    expect(done).toBe(false);
    unlock();
    await vacuuming;
  });

  test("ends when the queue is closed, while it waits for the lock", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    await queue.put("a job");
    const unlock = lockDatabase(directory);
    const failing = rejection(queue.vacuum());
    await queue.stats();
    await queue.close();
    expect(await failing).toMatchObject({ code: "CLOSED" });
    unlock();
  });

  test("makes a file of an older version one that shrinks by itself", async () => {
    const directory = tempDirectory();
    const database = openDatabase(directory);
    database.exec("PRAGMA journal_mode = WAL");
    database.exec("CREATE TABLE other (text)");
    database.close();
    const queue = openQueue({ location: directory });
    await queue.put("a job");
    expect(select(directory, "PRAGMA auto_vacuum")).toEqual([{ auto_vacuum: 0 }]);
    await queue.vacuum();
    expect(select(directory, "PRAGMA auto_vacuum")).toEqual([{ auto_vacuum: 2 }]);
    expect(faultsOf(directory)).toEqual([]);
  });

  test("is refused on a closed queue", async () => {
    const queue = openQueue();
    await queue.close();
    expect(await rejection(queue.vacuum())).toMatchObject({ code: "CLOSED" });
  });
});
