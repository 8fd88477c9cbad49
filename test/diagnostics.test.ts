import fs from "node:fs";
import path from "node:path";
import { QueueClosedError, type QueueDiagnostics, type Serializer, SimpleQueue, Worker } from "localqueue";
import { describe, expect, onTestFinished, test } from "vitest";
import { cellTime, SLOT } from "../dist/storage/handler-cells.js";
import { longestRunning } from "../dist/storage/running.js";
import type { ConsumerOnWire } from "../dist/storage/slot-consumer.js";
import { Connection } from "../dist/storage/sqlite/connection.js";
import { diagnose } from "../dist/storage/sqlite/diagnosis.js";
import { loadDriver, type Statement } from "../dist/storage/sqlite/driver.js";
import type { SideContext } from "../dist/storage/sqlite/side-context.js";
import { monotonicMs } from "../dist/storage/thread-clock.js";
import { openDatabase } from "./support/database.ts";
import { select } from "./support/inspect.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const { version } = JSON.parse(fs.readFileSync("package.json", "utf8"));

describe("the diagnostics of a queue", () => {
  test("say all there is to say of an empty one, in a form that survives JSON", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    const before = Date.now();
    const report = await queue.diagnostics();
    expect(report).toEqual({
      schemaVersion: 1,
      packageVersion: version,
      queueName: "default",
      serializerIdentity: "localqueue.jsonSerializer",
      leaseMs: 60_000,
      maxRetries: 3,
      maxPendingJobs: null,
      driver: expect.stringMatching(/^(node:sqlite|better-sqlite3)$/),
      sqliteVersion: select(directory, "SELECT sqlite_version() AS version")[0]?.["version"],
      sqliteSafe: expect.any(Boolean),
      observedAt: expect.any(String),
      journalMode: "wal",
      synchronous: 1,
      durabilityMode: "normal",
      busyTimeoutMs: 30_000,
      databaseSizeBytes: expect.any(Number),
      walSizeBytes: expect.any(Number),
      shmSizeBytes: expect.any(Number),
      walPages: expect.any(Number),
      walHeldBackPages: 0,
      pageCount: expect.any(Number),
      pageSize: 4096,
      freelistCount: 0,
      ready: 0,
      processing: 0,
      acked: 0,
      failed: 0,
      pendingJobs: 0,
      availableSlots: null,
      oldestAvailableAgeMs: null,
      nextDueInMs: null,
      oldestProcessingUpdatedAgeMs: null,
      activeLeases: 0,
      expiredLeases: 0,
      oldestExpiredLeaseAgeMs: null,
      groupCommits: 0,
      groupCommitSteps: 0,
      groupCommitMean: 0,
      groupCommitLargest: 0,
      lockWaits: 0,
      lockWaitMs: 0,
      wakeUps: expect.any(Number),
      timerWakeUps: 0,
      longestRunningJobId: null,
      longestRunningMs: null,
      warnings: report.sqliteSafe ? [] : [expect.stringContaining("SQLite")],
    });
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
    const at = new Date(report.observedAt).getTime();
    expect([before <= at, at <= Date.now()]).toEqual([true, true]);
    expect(report.databaseSizeBytes).toBe(fs.statSync(path.join(directory, "localqueue.db")).size);
  });

  test("are those of this queue and of this object's options, while files are everybody's", async () => {
    class Plain implements Serializer<string> {
      encode(text: string): Uint8Array {
        return Buffer.from(text);
      }
      decode(bytes: Uint8Array): string {
        return Buffer.from(bytes).toString();
      }
    }
    const directory = tempDirectory();
    const options = { name: "a", leaseMs: 5_000, maxRetries: 7, fsync: true, serializer: new Plain() };
    const [one, other] = [
      openQueue({ location: directory, ...options }),
      openQueue({ location: directory, name: "b" }),
    ];
    await one.putMany(["x", "y"]);
    expect(await one.diagnostics()).toMatchObject({
      queueName: "a",
      leaseMs: 5_000,
      maxRetries: 7,
      synchronous: 2,
      durabilityMode: "full",
      serializerIdentity: "Plain",
      ready: 2,
      pendingJobs: 2,
    });
    const { walSizeBytes } = await one.diagnostics();
    expect(await other.diagnostics()).toMatchObject({ queueName: "b", ready: 0, synchronous: 1, walSizeBytes });
  });

  test("tell what waits, for how long, and what is due when", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    await queue.putMany(["first", "second"]);
    await queue.put("later", { delayMs: 60_000 });
    change(directory, "UPDATE messages SET available_at = available_at - 5000 WHERE id = 1");
    let report = await queue.diagnostics();
    expect(report).toMatchObject({ ready: 3, activeLeases: 0 });
    expect(between(report.oldestAvailableAgeMs, 5_000, 15_000)).toBe(true);
    expect(between(report.nextDueInMs, 45_000, 60_000)).toBe(true);

    // What is due, but was not looked for since, counts as well.
    await queue.getMany(2);
    expect((await queue.diagnostics()).oldestAvailableAgeMs).toBeNull();
    change(
      directory,
      "UPDATE messages SET available_at = available_at - 70000, updated_at = updated_at - 70000, created_at = created_at - 70000 WHERE id = 3",
    );
    report = await queue.diagnostics();
    expect(between(report.oldestAvailableAgeMs, 10_000, 25_000)).toBe(true);
    expect(report.nextDueInMs).toBeNull();
  });

  test("report leases that ran out, and end none", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory, leaseMs: 30_000 });
    await queue.putMany(["a", "b", "c"]);
    await queue.getMany(3);
    change(
      directory,
      "UPDATE messages SET lease_until = lease_until - 40000, updated_at = updated_at - 40000 WHERE id < 3",
    );
    const rows = select(directory, "SELECT * FROM messages");
    const report = await queue.diagnostics();
    expect(report).toMatchObject({ processing: 3, activeLeases: 1, expiredLeases: 2, pendingJobs: 3 });
    expect(between(report.oldestExpiredLeaseAgeMs, 10_000, 25_000)).toBe(true);
    expect(between(report.oldestProcessingUpdatedAgeMs, 40_000, 55_000)).toBe(true);
    expect(select(directory, "SELECT * FROM messages")).toEqual(rows);
  });

  test("change nothing, however often they are asked for", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    await queue.putMany([1, 2, 3]);
    await (await queue.get()).ack();
    const first = await queue.diagnostics();
    const rows = select(directory, "SELECT * FROM messages");
    for (let round = 0; round < 20; round++) await queue.diagnostics();
    const last = await queue.diagnostics();
    const same = ({
      walSizeBytes,
      pageCount,
      groupCommits,
      groupCommitSteps,
      ready,
      acked,
    }: QueueDiagnostics): unknown => ({
      walSizeBytes,
      pageCount,
      groupCommits,
      groupCommitSteps,
      ready,
      acked,
    });
    expect(same(last)).toEqual(same(first));
    expect(select(directory, "SELECT * FROM messages")).toEqual(rows);
  });

  test("are one snapshot: whatever happens meanwhile, the numbers fit together", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    let done = false;
    const total = 400;
    await queue.putMany(Array.from({ length: total }, (_, i) => i));
    await queue.diagnostics(); // starts the thread
    const consume = async (): Promise<void> => {
      for (
        let jobs = await queue.getMany(3, { timeoutMs: 0 });
        jobs.length > 0;
        jobs = await queue.getMany(3, { timeoutMs: 0 })
      ) {
        const [first, ...rest] = jobs;
        await Promise.all([first?.fail(), ...rest.map((job) => job.ack())]);
      }
    };
    const consuming = Promise.all([consume(), consume(), consume()]).finally(() => {
      done = true;
    });
    let looked = 0;
    while (!done) {
      const { ready, processing, acked, failed, activeLeases, expiredLeases } = await queue.diagnostics();
      expect(ready + processing + acked + failed).toBe(total);
      expect(activeLeases + expiredLeases).toBe(processing);
      looked++;
    }
    await consuming;
    expect(looked).toBeGreaterThan(1);
  });

  test("are of the moment at which they begin, whatever is committed before they are complete", () => {
    const directory = tempDirectory();
    const driver = loadDriver();
    const connection = new Connection({ directory, driver });
    const [db, other] = [driver.open(connection.file), driver.open(connection.file)];
    onTestFinished(() => {
      for (const each of [db, other, connection]) each.close();
    });
    const insert = `INSERT INTO messages (queue, payload, status, max_attempts, available_at, lease_until, created_at, updated_at)
      VALUES ('q', x'', 1, 4, 0, 1, 0, 0);
      INSERT INTO localqueue_counts (queue, processing) VALUES ('q', 1) ON CONFLICT DO UPDATE SET processing = processing + 1`;
    other.exec(insert);
    const prepare = (sql: string): Statement => {
      const statement = db.prepare(sql);
      const get: Statement["get"] = (parameters) => {
        const row = statement.get(parameters);
        other.exec(insert); // somebody is quick
        return row;
      };
      return { ...statement, get };
    };
    const reader = { ...db, inTransaction: true, prepare };
    const context = { directory, file: connection.file, driver, reader: () => reader } as unknown as SideContext;
    expect(diagnose({ queue: "q" }, context)).toMatchObject({ processing: 1, activeLeases: 0, expiredLeases: 1 });
  });

  test("count the transactions of this program, what was in them, and its waits for the lock", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    await queue.put("first");
    const before = await queue.diagnostics();
    await Promise.all(Array.from({ length: 50 }, (_, i) => queue.put(i)));
    const after = await queue.diagnostics();
    expect(Number(after.groupCommitSteps) - Number(before.groupCommitSteps)).toBe(50);
    expect(Number(after.groupCommits) - Number(before.groupCommits)).toBeLessThan(25);
    expect(after.groupCommitLargest).toBeGreaterThan(2);
    expect(after.groupCommitMean).toBeCloseTo(Number(after.groupCommitSteps) / Number(after.groupCommits), 0);
    expect(after.wakeUps).toBeGreaterThan(0);

    const db = openDatabase(directory);
    onTestFinished(() => db.close());
    db.exec("BEGIN IMMEDIATE");
    const locked = queue.put("late");
    await until(async () => Number((await queue.diagnostics()).lockWaits) > 0);
    db.exec("ROLLBACK");
    await locked;
    expect((await queue.diagnostics()).lockWaitMs).toBeGreaterThanOrEqual(1);
  });

  test("name the job that a worker has been at the longest", async () => {
    const queue = openQueue<string>();
    await queue.putMany(["slow", "quick"]);
    let finish = (): void => {};
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const worker = new Worker(queue, (job) => (job.data === "slow" ? finished : undefined), { concurrency: 2 });
    const running = worker.run();
    await until(async () => (await queue.stats()).acked === 1);
    const report = await until(async () => {
      const each = await queue.diagnostics();
      return (each.longestRunningMs ?? 0) >= 20 ? each : undefined;
    });
    expect(report?.longestRunningJobId).toBe(1);
    finish();
    await until(async () => (await queue.stats()).acked === 2);
    expect(await queue.diagnostics()).toMatchObject({ longestRunningJobId: null, longestRunningMs: null });
    await worker.stop();
    await running;
  });

  test("do not take a job for running that was not begun, was given back, or is another queue's", () => {
    const now = cellTime(monotonicMs());
    const worker = (queue: string, started: readonly number[]): Parameters<typeof longestRunning>[0] => {
      const cells = new SharedArrayBuffer(started.length * 4);
      new Int32Array(cells).set(started);
      const held = started.map((_, slot) => ({ id: 10 + slot, receipt: "r", slot }));
      return [
        { settings: { queue, cells } as ConsumerOnWire, held: () => [{ id: 1, receipt: "old", slot: 0 }, ...held] },
      ];
    };
    const idle = { longestRunningJobId: null, longestRunningMs: null };
    expect(longestRunning(worker("q", [SLOT.waiting, SLOT.returned]), "q")).toEqual(idle);
    expect(longestRunning(worker("another", [now]), "q")).toEqual(idle);
    const { longestRunningJobId, longestRunningMs } = longestRunning(worker("q", [now - 50, now - 500, now]), "q");
    expect(longestRunningJobId).toBe(11);
    expect(between(longestRunningMs, 500, 5_000)).toBe(true);
  });

  test("warn when done jobs outgrow the work", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    await queue.put("job");
    const acked = (count: number): void => change(directory, `UPDATE localqueue_counts SET acked = ${count}`);
    const warned = async (): Promise<boolean> =>
      (await queue.diagnostics()).warnings.some((warning) => /100000 acknowledged.* purge.*`retention`/s.test(warning));
    acked(99_999);
    expect(await warned()).toBe(false);
    acked(100_000);
    expect(await warned()).toBe(true);
    change(directory, "UPDATE localqueue_counts SET ready = 10000");
    expect(await warned()).toBe(false);
  });

  test("warn of a reader that lets the write-ahead log grow, until it ends", async () => {
    const directory = tempDirectory();
    const queue = openQueue<string>({ location: directory });
    await queue.put("job");
    const db = openDatabase(directory);
    onTestFinished(() => db.close());
    db.exec("BEGIN");
    db.prepare("SELECT count(*) FROM messages").get();
    const megabytes = "x".repeat(4 * 1024 * 1024);
    for (let i = 0; i < 18; i++) await queue.put(megabytes);
    const report = await queue.diagnostics();
    expect(report.walSizeBytes).toBeGreaterThan(64 * 1024 * 1024);
    expect(Number(report.walPages) * 4096).toBeGreaterThan(60 * 1024 * 1024);
    expect(report.walHeldBackPages).toBeGreaterThan(10_000);
    expect(report.warnings).toContainEqual(expect.stringMatching(/write-ahead log has grown to \d+ MiB/));
    db.exec("COMMIT");
    await until(async () => {
      await queue.put("more");
      return (await queue.diagnostics()).walHeldBackPages === 0;
    });
  });

  test("are refused by a queue that is closed", async () => {
    const queue = new SimpleQueue(tempDirectory());
    await queue.close();
    await expect(queue.diagnostics()).rejects.toThrow(QueueClosedError);
  });
});

function between(value: number | null, low: number, high: number): boolean {
  return value !== null && value >= low && value <= high;
}

/** Changes rows behind the queue's back. */
function change(directory: string, sql: string): void {
  const db = openDatabase(directory);
  try {
    db.exec("PRAGMA busy_timeout = 5000");
    db.exec(sql);
  } finally {
    db.close();
  }
}
