import { describe, expect, onTestFinished, test } from "vitest";
import { STATES } from "../dist/state.js";
import { openStorage } from "../dist/storage/location.js";
import type { Database, Row } from "../dist/storage/sqlite/driver.js";
import type { QueueStats, Storage } from "../dist/storage/storage.js";
import { LEASE_MS, put, putMany, take, takeOne } from "./contract/jobs.ts";
import { openBare, PYTHON_INDEX } from "./support/python-files.ts";
import { tempDirectory } from "./support/temp.ts";

/** What the Python package does to a file, in its own SQL. */
class PythonClient {
  readonly database: Database;

  /** Opens the file as every Python client does: what it lacks is created before anything else. */
  constructor(directory: string) {
    this.database = openBare(directory);
    this.database.exec(PYTHON_INDEX);
    onTestFinished(() => this.database.close());
  }

  put(queue = "default", jobId: string | null = null): boolean {
    const now = Date.now();
    const { changes } = this.database
      .prepare(
        `INSERT OR IGNORE INTO messages (queue, payload, status, attempts, max_attempts, available_at, job_id, created_at, updated_at)
         VALUES (:queue, x'7b7d', 0, 0, 4, :now, :jobId, :now, :now)`,
      )
      .run({ queue, jobId, now });
    return changes === 1;
  }

  /** Claims the first ready job. */
  get(queue = "default", leaseMs = LEASE_MS): { id: number; receipt: string } {
    const now = Date.now();
    const receipt = `4711-${process.hrtime.bigint()}`;
    this.database.exec("BEGIN IMMEDIATE");
    const [row] = this.database
      .prepare(
        "SELECT id FROM messages WHERE queue = :queue AND status = 0 AND available_at <= :now ORDER BY id LIMIT 1",
      )
      .all({ queue, now });
    const id = row?.["id"] as number;
    this.database
      .prepare(
        `UPDATE messages SET status = 1, receipt = :receipt, lease_until = :until, attempts = attempts + 1, updated_at = :now
         WHERE id = :id`,
      )
      .run({ id, receipt, until: now + leaseMs, now });
    this.database.exec("COMMIT");
    return { id, receipt };
  }

  end({ id, receipt }: { id: number; receipt: string }, status: number): void {
    this.database
      .prepare(
        `UPDATE messages SET status = :status, receipt = NULL, lease_until = NULL, updated_at = :now
         WHERE id = :id AND status = 1 AND receipt = :receipt`,
      )
      .run({ id, receipt, status, now: Date.now() });
  }

  purge(queue = "default"): void {
    this.database.prepare("DELETE FROM messages WHERE queue = :queue AND status = 2").run({ queue });
  }
}

describe("the statistics, when a Python client opens the file of a running engine,", () => {
  test("count what Python wrote, without a write of ours in between", async () => {
    const { storage, python, expectRight } = await together();
    await expectRight({ ready: 3, processing: 0, acked: 0, failed: 0 });
    python.put();
    await expectRight({ ready: 4, processing: 0, acked: 0, failed: 0 });
    const [first, second, third] = [python.get(), python.get(), python.get()];
    await expectRight({ ready: 1, processing: 3, acked: 0, failed: 0 });
    python.end(first, 2);
    python.end(second, 3);
    python.end(third, 0);
    await expectRight({ ready: 2, processing: 0, acked: 1, failed: 1 });
    python.purge();
    await expectRight({ ready: 2, processing: 0, acked: 0, failed: 1 });
    await storage.close();
  });

  test("count what Python wrote before we looked for the first time", async () => {
    const directory = tempDirectory();
    await put(open(directory));
    const python = new PythonClient(directory);
    for (let i = 0; i < 5; i++) python.put();
    python.end(python.get(), 2);
    expect(await open(directory).stats()).toEqual({ ready: 5, processing: 0, acked: 1, failed: 0 });
  });

  test("go on counting what we write", async () => {
    const { storage, python, expectRight } = await together();
    python.put();
    await putMany(storage, 2);
    const [delivery] = await take(storage, 1);
    await storage.settle(delivery ?? { id: 0, receipt: "" }, { event: "ack" });
    await takeOne(storage);
    await expectRight({ ready: 4, processing: 1, acked: 1, failed: 0 });
    await put(storage, "known", { jobId: "job" });
    await put(storage, "known", { jobId: "job" });
    await expectRight({ ready: 5, processing: 1, acked: 1, failed: 0 });
  });

  test("count both writers' work in turns", async () => {
    const { storage, python, expectRight } = await together();
    for (let round = 0; round < 20; round++) {
      python.put();
      const delivery = await takeOne(storage);
      python.end(delivery, 2);
      const lease = python.get();
      await storage.settle(lease, { event: "release" });
      await put(storage);
    }
    await expectRight({ ready: 23, processing: 0, acked: 20, failed: 0 });
  });

  test("count neither what Python's INSERT OR IGNORE ignored nor what it rolled back", async () => {
    const { python, expectRight } = await together();
    await expectRight({ ready: 3, processing: 0, acked: 0, failed: 0 });
    expect(python.put("default", "job")).toBe(true);
    expect(python.put("default", "job")).toBe(false);
    await expectRight({ ready: 4, processing: 0, acked: 0, failed: 0 });
    python.database.exec("BEGIN IMMEDIATE");
    python.put();
    python.put("python's own");
    python.database.exec("UPDATE messages SET status = 2");
    python.database.exec("ROLLBACK");
    await expectRight({ ready: 4, processing: 0, acked: 0, failed: 0 });
  });

  test("count a queue that only Python writes to", async () => {
    const { directory, python } = await together();
    await open(directory).stats();
    for (let i = 0; i < 3; i++) python.put("python's own");
    python.end(python.get("python's own"), 3);
    expect(await open(directory, "python's own").stats()).toEqual({ ready: 2, processing: 0, acked: 0, failed: 1 });
    expect(await open(directory, "nobody's").stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 0 });
  });

  test("are right whatever a statement says about conflicts, and when rows change but not their state", async () => {
    const { python, expectRight } = await together();
    await expectRight({ ready: 3, processing: 0, acked: 0, failed: 0 });
    python.database.exec("UPDATE messages SET updated_at = updated_at + 1, status = status");
    for (const policy of ["REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK"]) {
      python.database.exec(
        `INSERT OR ${policy} INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at)
           SELECT queue, payload, 2, 1, 4, available_at, created_at, updated_at FROM messages WHERE id = 1`,
      );
      python.database.exec(`UPDATE OR ${policy} messages SET status = 3 WHERE status = 2`);
    }
    await expectRight({ ready: 3, processing: 0, acked: 0, failed: 5 });
    python.database.exec("DELETE FROM messages WHERE status = 3");
    await expectRight({ ready: 3, processing: 0, acked: 0, failed: 0 });
  });

  test("are counted again when the table of counts was lost", async () => {
    const { storage, python, expectRight } = await together();
    await storage.stats();
    python.database.exec("DROP TRIGGER localqueue_count_update; DROP TABLE localqueue_counts");
    await expectRight({ ready: 3, processing: 0, acked: 0, failed: 0 });
    python.end(python.get(), 2);
    await expectRight({ ready: 2, processing: 0, acked: 1, failed: 0 });
  });

  test.each(["in the same breath", "before"])(
    "are awaited while Python holds the lock, but close() is not kept waiting if they were asked for %s",
    async (when) => {
      const { directory, storage, python } = await together();
      python.database.exec("BEGIN IMMEDIATE");
      python.put();
      const asked = storage.stats().then(
        (stats) => stats,
        (error: { code: string }) => error.code,
      );
      if (when === "before") await take(open(directory, "empty"));
      const startedAt = performance.now();
      await storage.close();
      expect(performance.now() - startedAt).toBeLessThan(3000);
      expect(await asked).toBe("BUSY");
      python.database.exec("COMMIT");
      expect(await open(directory).stats()).toMatchObject({ ready: 4 });
    },
  );
});

test("a waiting claim gets what Python puts", async () => {
  const { storage, python } = await together();
  await take(storage, 10);
  const waiting = storage.claim({ limit: 1, leaseMs: LEASE_MS });
  await storage.stats();
  python.put();
  expect(await waiting).toMatchObject([{ id: 4, attempt: 1 }]);
});

test("a waiting claim gets a job whose Python holder's lease ran out", async () => {
  const { storage, python } = await together();
  await take(storage, 2); // before that lease begins, or they might get that job, too
  const { id } = python.get("default", 50);
  expect(await storage.claim({ limit: 1, leaseMs: LEASE_MS })).toMatchObject([{ id, attempt: 2 }]);
});

test("as long as no Python client opened the file, there are no triggers, and the counts are right all the same", async () => {
  const directory = tempDirectory();
  const storage = open(directory);
  await putMany(storage, 5);
  const [one, two, three] = await take(storage, 4);
  await storage.settle(one ?? { id: 0, receipt: "" }, { event: "ack" });
  await storage.settle(two ?? { id: 0, receipt: "" }, { event: "release" });
  await storage.settle(three ?? { id: 0, receipt: "" }, {
    event: "fail",
    lastError: undefined,
    reason: "rejected",
    category: undefined,
  });
  const database = openBare(directory);
  expect(database.prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'").all()).toEqual([]);
  const rows = database.prepare("SELECT queue, ready, processing, acked, failed FROM localqueue_counts").all();
  database.close();
  expect(rows).toEqual([{ queue: "default", ready: 2, processing: 1, acked: 1, failed: 1 }]);
  expect(await storage.stats()).toEqual({ ready: 2, processing: 1, acked: 1, failed: 1 });
});

interface Together {
  readonly directory: string;
  readonly storage: Storage;
  readonly python: PythonClient;
  /** The statistics are these, and that is what the rows say, too. */
  readonly expectRight: (stats: QueueStats) => Promise<void>;
}

/** An engine at work, with three ready jobs, and a Python client that just came. */
async function together(): Promise<Together> {
  const directory = tempDirectory();
  const storage = open(directory);
  await putMany(storage, 3);
  const python = new PythonClient(directory);
  const expectRight = async (stats: QueueStats): Promise<void> => {
    expect(await storage.stats()).toEqual(stats);
    expect(counted(python.database)).toEqual(stats);
  };
  return { directory, storage, python, expectRight };
}

function counted(database: Database): Row {
  const sums = STATES.map((state, status) => `coalesce(sum(status = ${status}), 0) AS ${state}`);
  return database.prepare(`SELECT ${sums.join(", ")} FROM messages WHERE queue = 'default'`).all()[0] ?? {};
}

function open(directory: string, queue = "default"): Storage {
  const storage = openStorage(directory, { queue, fsync: undefined });
  onTestFinished(() => storage.close());
  return storage;
}
