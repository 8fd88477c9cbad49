import { expect, test } from "vitest";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import type { Command } from "../dist/storage/sqlite/protocol.js";
import { PUT_ROWS, SQL } from "../dist/storage/sqlite/statements.js";
import { weightOf } from "../dist/storage/weight.js";
import { putCommand, TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver, sqliteError } from "./support/faulty-driver.ts";
import { tempDirectory } from "./support/temp.ts";

const MIB = 1024 * 1024;

function open(realHold = false): { engine: TestEngine; driver: FaultyDriver } {
  const driver = new FaultyDriver();
  const engine = new TestEngine({ directory: tempDirectory(), driver, realHold });
  driver.log.length = 0;
  return { engine, driver };
}

/** How many jobs each transaction wrote. */
function transactions(log: readonly string[]): number[] {
  const sizes: number[] = [];
  let size = 0;
  for (const sql of log) {
    if (sql.startsWith("BEGIN")) size = 0;
    else if (sql === SQL.put) size++;
    else if (sql === SQL.putRows) size += PUT_ROWS;
    else if (sql === "COMMIT" && size > 0) sizes.push(size);
  }
  return sizes;
}

/** As if each COMMIT took so long. */
function commitsTake(engine: TestEngine, ms: number): void {
  Object.defineProperty(engine.connection, "commitMs", { get: () => ms, set: () => {} });
}

test("5,000 commands that come at once become transactions of at most 1,000, in order", () => {
  const { engine, driver } = open();
  commitsTake(engine, 5);
  const calls = Array.from({ length: 5000 }, () => engine.newCall());
  const commands: Command[] = calls.map(({ id }, i) => putCommand(id, [`job ${i}`]));
  engine.send(commands);
  engine.run();
  expect(transactions(driver.log)).toEqual([1000, 1000, 1000, 1000, 1000]);
  expect(calls.map(({ put }) => put?.[0]?.id)).toEqual(Array.from({ length: 5000 }, (_, i) => i + 1));
  expect(engine.stored()).toEqual(Array.from({ length: 5000 }, (_, i) => `job ${i}`));
});

test("where a COMMIT takes little, a transaction leaves half of the commands to the next, but of few none", () => {
  const { engine, driver } = open();
  commitsTake(engine, 0.05);
  engine.send(Array.from({ length: 500 }, () => putCommand(engine.newCall().id, ["job"])));
  engine.run();
  expect(transactions(driver.log)).toEqual([250, 125, 64, 61]);
});

test("an event for many queues counts as large for a transaction as all that it writes", () => {
  const { engine, driver } = open();
  const queues = ["a", "b", "c", "d"];
  for (const jobId of ["1", "2", "3"]) engine.dispatch([{ payload: "x".repeat(MIB / 5), jobId, queues }]);
  engine.run();
  const written = driver.log.filter((sql) => sql === "COMMIT" || sql === SQL.putEvent);
  expect(written.join()).toBe([1, 2, 3].flatMap(() => [...queues.map(() => SQL.putEvent), "COMMIT"]).join());
});

test("so does what is emitted with an ack", () => {
  const { engine, driver } = open();
  engine.putMany(["1", "2"]);
  const claim = engine.claim({ limit: 2 });
  engine.run();
  driver.log.length = 0;
  for (const lease of claim.claimed ?? [])
    engine.emit(lease, [{ payload: "x".repeat(MIB / 5), jobId: `${lease.id}`, queues: ["a", "b", "c", "d"] }]);
  engine.run();
  expect(driver.log.filter((sql) => sql === "COMMIT")).toHaveLength(2);
});

test("a client is told that its batch is done only when all its commands are", () => {
  const { engine, driver } = open();
  const calls = Array.from({ length: 1500 }, () => engine.newCall());
  engine.send(calls.map(({ id }) => putCommand(id, ["job"])));
  const done = engine.batchesDone;
  let doneEarly: number | undefined;
  driver.plant({ at: "COMMIT", after: 1, strikes: () => (doneEarly = engine.batchesDone) });
  engine.run();
  expect(doneEarly).toBe(done);
  expect(engine.batchesDone).toBe(done + 1);
});

test("a put of 2 MiB commits alone", () => {
  const { engine, driver } = open();
  engine.put("before");
  const large = engine.put("x".repeat(2 * MIB));
  engine.put("after");
  engine.put("after");
  engine.run();
  expect(transactions(driver.log)).toEqual([1, 1, 2]);
  expect(large.put).toMatchObject([{ id: 2, inserted: true }]);
});

test("a transaction takes no more than 1 MiB of payloads", () => {
  const { engine, driver } = open();
  for (let i = 0; i < 7; i++) engine.put("x".repeat(0.4 * MIB));
  engine.run();
  expect(transactions(driver.log)).toEqual([2, 2, 2, 1]);
});

test("a put of many jobs stays in one transaction, whatever its size", () => {
  const { engine, driver } = open();
  const put = engine.putMany(Array.from({ length: 3000 }, () => "x".repeat(1000)));
  engine.run();
  expect(transactions(driver.log)).toEqual([3000]);
  expect(put.put).toHaveLength(3000);
});

test("many calls that each put many tiny jobs are spread over transactions of a few thousand jobs", () => {
  const { engine, driver } = open();
  const tiny = Array<string>(500).fill("1");
  for (let call = 0; call < 40; call++) {
    const command = putCommand(engine.newCall().id, tiny);
    engine.send([{ ...command, bytes: weightOf(command.entries) }]);
  }
  engine.run();
  const sizes = transactions(driver.log);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(20_000);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(5_000);
});

test("jobs that a lower budget leaves without deliveries are failed in slices", () => {
  const { engine, driver } = open();
  engine.putMany(Array(1000).fill("exhausted"));
  engine.put("fresh");
  engine.run();
  engine.foreign("UPDATE messages SET attempts = 2 WHERE id <= 1000");
  engine.foreign("UPDATE messages SET attempts = 0 WHERE id > 1000");
  driver.log.length = 0;
  const claim = engine.consume({ maxAttempts: 2 }).claim();
  engine.elapse(5000);
  expect(engine.textOf(claim.delivery)).toBe("fresh");
  const slices = driver.log.join("\n").split("COMMIT");
  const most = Math.max(...slices.map((slice) => slice.split(SQL.exhaust).length - 1));
  expect(most).toBeGreaterThan(1);
  expect(most).toBeLessThanOrEqual(101);
  const stats = engine.stats();
  engine.run();
  expect(stats.answer?.stats).toEqual({ ready: 0, processing: 1, acked: 0, failed: 1000 });
});

test("a claim sees what the puts of its own batch add", () => {
  const { engine, driver } = open();
  engine.put("job");
  const claim = engine.claim();
  engine.step();
  expect(driver.count("COMMIT")).toBe(1);
  expect(engine.textOf(claim.delivery)).toBe("job");
});

test.each([
  { commitMs: 5, transactions: 1 },
  { commitMs: 0.05, transactions: 2 },
])("a hundred waiting claims are served by as few transactions as pay: %o", ({ commitMs, transactions }) => {
  const { engine, driver } = open();
  commitsTake(engine, commitMs);
  const claims = Array.from({ length: 100 }, () => engine.claim({ waitMs: 60_000 }));
  engine.run();
  driver.log.length = 0;
  engine.putMany(Array.from({ length: 99 }, (_, i) => `job ${i}`));
  engine.run();
  expect(driver.count("COMMIT")).toBe(transactions);
  // First come, first served.
  expect(claims.slice(0, 99).map((claim) => engine.textOf(claim.delivery))).toEqual(
    Array.from({ length: 99 }, (_, i) => `job ${i}`),
  );
  expect(claims.at(99)?.answered).toBe(false);
});

test("an idle engine writes nothing: an empty queue is looked at without a lock", () => {
  const { engine, driver } = open();
  const claim = engine.claim({ waitMs: 60_000 });
  const look = engine.claim();
  engine.elapse(10_000);
  expect(look.claimed).toEqual([]);
  expect(claim.answered).toBe(false);
  expect(driver.log).toEqual([]);
});

test("between two batches others are let in if they have written lately, and only then", () => {
  const { engine } = open(true);
  const send = (): void => {
    const calls = Array.from({ length: 2000 }, () => engine.newCall());
    engine.send(calls.map(({ id }) => putCommand(id, ["x".repeat(500)])));
  };
  send();
  expect(engine.step()).toBe(0);
  engine.run();

  engine.foreign("CREATE TABLE somebody_elses (x)");
  send();
  const gap = engine.step();
  expect(gap).toBeGreaterThanOrEqual(0.5);
  expect(gap).toBeLessThan(1000);
  const stored = engine.stored().length;
  expect(engine.step()).toBe(gap);
  const look = engine.claim({ waitMs: 0 });
  expect(engine.step()).toBe(gap);
  expect(look.answered).toBe(false);
  expect(engine.stored().length).toBe(stored);
  engine.clock.advance(Math.ceil(gap));
  engine.step();
  expect(look.claimed).toHaveLength(1);
  expect(engine.stored().length).toBeGreaterThan(stored);

  engine.run();
  engine.clock.advance(1100);
  send();
  expect(engine.step()).toBe(0);
});

test("one command that flushes to the disk makes its whole batch flush", () => {
  const { engine, driver } = open();
  const synchronous: string[] = [];
  driver.plant({ at: "PRAGMA synchronous = FULL", strikes: () => synchronous.push("FULL") });
  driver.plant({ at: "PRAGMA synchronous = NORMAL", strikes: () => synchronous.push("NORMAL") });
  engine.put("a");
  engine.put("b", { fsync: true });
  engine.run();
  engine.put("c");
  engine.run();
  expect(synchronous).toEqual(["FULL", "NORMAL"]);
  expect(driver.count("COMMIT")).toBe(2);
});

test("a put that is to be flushed writes, and so flushes, even if its job is there already", () => {
  const { engine, driver } = open();
  engine.put("job", { jobId: "same" });
  engine.run();
  const observer = loadDriver().open(engine.connection.file);
  const version = (): unknown => observer.prepare("PRAGMA data_version").get()?.["data_version"];
  const before = version();
  const flushed = driver.plant({ at: "PRAGMA synchronous = FULL", strikes: () => {} });
  const put = engine.put("job", { jobId: "same", fsync: true });
  engine.run();
  expect(put.put).toEqual([{ id: 1, inserted: false }]);
  expect(flushed.struck).toBe(1);
  expect(version()).not.toBe(before);
  observer.close();
});

test("a command is withdrawn while the lock is somebody else's, and not afterwards", () => {
  const { engine, driver } = open();
  driver.plant({
    at: "BEGIN IMMEDIATE",
    times: 3,
    error: sqliteError("BUSY"),
    strikes: () => engine.clock.advance(50),
  });
  const [first, second] = [engine.put("first"), engine.put("second")];
  engine.step();
  engine.abort(first);
  engine.run();
  expect(first.answer).toMatchObject({ refused: "aborted" });
  expect(second.put).toMatchObject([{ inserted: true }]);
  engine.abort(second);
  engine.run();
  expect(engine.stored()).toEqual(["second"]);
});

test("a lock that is held for 200 ms delays commands, in their order, and fails none", () => {
  const { engine, driver } = open();
  const busy = driver.plant({
    at: "BEGIN IMMEDIATE",
    times: 4,
    error: sqliteError("BUSY"),
    strikes: () => engine.clock.advance(50),
  });
  const puts = ["a", "b", "c"].map((payload) => engine.put(payload));
  engine.step();
  puts.push(engine.put("d"));
  engine.run();
  expect(busy.struck).toBe(4);
  expect(puts.map(({ put }) => put?.[0]?.id)).toEqual([1, 2, 3, 4]);
  expect(engine.stored()).toEqual(["a", "b", "c", "d"]);
});

test("each command waits for the lock as long as it was told to, and no longer", () => {
  const { engine, driver } = open();
  driver.plant({
    at: "BEGIN IMMEDIATE",
    times: Number.POSITIVE_INFINITY,
    error: sqliteError("BUSY"),
    strikes: () => engine.clock.advance(50),
  });
  const start = engine.clock.monotonic;
  const waiting = new Map([0, 100, 400].map((lockMs) => [lockMs, engine.put("job", { lockMs })]));
  const endedAt = new Map<number, number>();
  while (endedAt.size < waiting.size && engine.clock.monotonic < start + 5000) {
    engine.clock.advance(Math.min(10, Math.ceil(engine.step())));
    for (const [lockMs, { error }] of waiting) {
      if (error !== undefined && !endedAt.has(lockMs)) endedAt.set(lockMs, engine.clock.monotonic - start);
    }
  }
  for (const [lockMs, call] of waiting) {
    expect(call.error).toMatchObject({ code: "BUSY", outcome: "failed" });
    expect(endedAt.get(lockMs)).toBeGreaterThanOrEqual(lockMs);
    expect(endedAt.get(lockMs)).toBeLessThanOrEqual(lockMs + 100);
  }
});

test("queues that nobody waits for any longer cost nothing", () => {
  const { engine } = open();
  const putsOnly = (): number => {
    const started = performance.now();
    for (let i = 0; i < 300; i++) {
      engine.put("job");
      engine.step();
    }
    return performance.now() - started;
  };
  putsOnly();
  const before = Math.min(putsOnly(), putsOnly());
  for (let i = 0; i < 20_000; i++) engine.claim({ queue: `queue ${i}` });
  engine.run();
  engine.run();
  expect(Math.min(putsOnly(), putsOnly())).toBeLessThan(3 * before + 100);
});
