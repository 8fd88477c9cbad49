import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import { type Call, TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver, sqliteError } from "./support/faulty-driver.ts";
import { openBare, PYTHON_INDEX } from "./support/python-files.ts";
import { tempDirectory } from "./support/temp.ts";

const MANY = 30_000;

/** So many finished rows, written by another process at the engine's present. */
function fill(engine: TestEngine, rows: number, { status = 2, size = 100 } = {}): void {
  const now = engine.clock.wall;
  engine.foreign(`BEGIN IMMEDIATE;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows})
    INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, failure_reason, created_at, updated_at)
      SELECT 'default', zeroblob(${size}), ${status}, 1, 4, ${now}, iif(${status} = 3, 'rejected', NULL), ${now}, ${now} FROM n;
    INSERT INTO localqueue_counts (queue, acked, failed) VALUES ('default', ${status === 2 ? rows : 0}, ${status === 3 ? rows : 0})
      ON CONFLICT DO UPDATE SET acked = acked + excluded.acked, failed = failed + excluded.failed;
    COMMIT`);
}

function countRows(engine: TestEngine): number {
  return engine.rows("SELECT count(*) AS rows FROM messages")[0]?.["rows"] as number;
}

function expectRightCounts(engine: TestEngine): void {
  const counts = engine.rows("SELECT ready, processing, acked, failed FROM localqueue_counts WHERE queue = 'default'");
  const [real] = engine.rows(`SELECT coalesce(sum(status = 0), 0) AS ready, coalesce(sum(status = 1), 0) AS processing,
    coalesce(sum(status = 2), 0) AS acked, coalesce(sum(status = 3), 0) AS failed FROM messages`);
  expect(counts).toEqual([real]);
}

/** Steps the engine, time passing as it asks for, until `done`; returns the number of steps. */
function stepUntil(engine: TestEngine, done: () => boolean): number {
  for (let steps = 1; steps < 10_000; steps++) {
    const wait = engine.step();
    if (done()) return steps;
    engine.clock.advance(Math.max(1, Math.ceil(wait)));
    engine.tick();
  }
  throw new Error("it does not end");
}

/** Steps until all are answered, however long other writers are given precedence. */
function settle(engine: TestEngine, ...calls: Call[]): void {
  stepUntil(engine, () => calls.every(({ answered }) => answered));
}

describe("a purge", () => {
  test("spares what was finished exactly at the cut-off, and takes what is a millisecond older", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, 1);
    engine.clock.advance(1000);
    const strict = engine.purge(1000);
    engine.step();
    expect(strict.answer).toMatchObject({ changed: 0 });
    engine.clock.advance(1);
    const later = engine.purge(1000);
    settle(engine, later);
    expect(later.answer).toMatchObject({ changed: 1 });
  });

  test("reads its cut-off once, when its first transaction has the lock", () => {
    const driver = new FaultyDriver();
    const engine = new TestEngine({ directory: tempDirectory(), driver });
    fill(engine, MANY);
    engine.clock.advance(999);
    driver.plant({ at: "BEGIN IMMEDIATE", strikes: () => engine.clock.advance(2) });
    const purge = engine.purge(1000);
    engine.step();
    expect(countRows(engine)).toBeLessThan(MANY);
    // When their turn comes these are old enough, but they were not then.
    engine.foreign(`UPDATE messages SET updated_at = ${engine.clock.wall} WHERE id > ${MANY - 10}`);
    engine.clock.advance(2000);
    settle(engine, purge);
    expect(purge.answer).toMatchObject({ changed: MANY - 10 });
    expect(countRows(engine)).toBe(10);
    expectRightCounts(engine);
  });

  test("goes in many short transactions, and leaves the lock free in between", () => {
    const driver = new FaultyDriver();
    const engine = new TestEngine({ directory: tempDirectory(), driver, realHold: true });
    fill(engine, MANY);
    engine.clock.advance(10);
    driver.log.length = 0;
    const purge = engine.purge(1);
    while (!purge.answered) {
      const wait = engine.step();
      if (!purge.answered) expect(wait).toBeGreaterThan(0);
      engine.clock.advance(Math.ceil(wait));
    }
    expect(driver.count("COMMIT")).toBeGreaterThan(5);
    expect(driver.autocommitted).toEqual([]);
    expectRightCounts(engine);
  });

  test("lets those go first who ask meanwhile", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, MANY);
    settle(engine, engine.reclaim());
    // Other writers are not considered any more.
    engine.clock.advance(2000);
    const purge = engine.purge(1);
    for (let i = 0; !purge.answered; i++) {
      engine.clock.advance(1);
      const put = engine.put(`${i}`);
      engine.step();
      expect(put.answered).toBe(true);
      const claim = engine.claim();
      engine.step();
      expect(engine.textOf(claim.delivery)).toBe(`${i}`);
    }
    expect(purge.answer).toMatchObject({ changed: MANY });
    expectRightCounts(engine);
  });

  test("takes turns with others", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, MANY);
    engine.clock.advance(10);
    const long = engine.purge(1);
    const short = engine.sweep({ kind: "purgeFailed" });
    settle(engine, short);
    expect(long.answered).toBe(false);
    settle(engine, long);
    expect([short.answer, long.answer]).toMatchObject([{ changed: 0 }, { changed: MANY }]);
  });

  test("of large payloads takes few of them at a time", () => {
    const driver = new FaultyDriver();
    const engine = new TestEngine({ directory: tempDirectory(), driver });
    fill(engine, 100, { size: 200_000 });
    engine.clock.advance(10);
    driver.log.length = 0;
    const purge = engine.purge(1);
    settle(engine, purge);
    expect(purge.answer).toMatchObject({ changed: 100 });
    expect(driver.count(SQL.purgeAcked)).toBeGreaterThanOrEqual(100);
  });

  test("waits for a lock that somebody else holds, as long as it may", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, 10);
    engine.clock.advance(10);
    const other = openBare(engine.connection.file.replace(/[^/\\]*$/, ""));
    other.exec("BEGIN IMMEDIATE");
    const patient = engine.purge(1);
    const impatient = engine.sweep({ kind: "purge", olderThanMs: 1, includeFailed: false }, { lockMs: 10 });
    settle(engine, impatient);
    expect(impatient.error).toMatchObject({ code: "BUSY", outcome: "failed" });
    expect(patient.answered).toBe(false);
    other.exec("COMMIT");
    other.close();
    settle(engine, patient);
    expect(patient.answer).toMatchObject({ changed: 10 });
  });

  test("ends with the session that asked for it, after the slice under way", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, MANY);
    engine.clock.advance(10);
    const purge = engine.purge(1);
    engine.step();
    const left = countRows(engine);
    expect(left).toBeLessThan(MANY);
    engine.engine.receive({ kind: "closeSession", session: 1 });
    engine.run();
    expect(purge.answer).toMatchObject({ refused: "closed" });
    expect(countRows(engine)).toBe(left);
    expectRightCounts(engine);
  });

  test.each([
    ["did not happen", "nothing"],
    ["happened", "executes"],
  ] as const)("of which a COMMIT fails that %s is repeated, and the counts stay right", (_, really) => {
    const driver = new FaultyDriver();
    const engine = new TestEngine({ directory: tempDirectory(), driver });
    fill(engine, 100);
    settle(engine, engine.put("kept"));
    engine.clock.advance(10);
    driver.plant({ at: "COMMIT", error: sqliteError("IOERR_WRITE"), really });
    const purge = engine.purge(1);
    settle(engine, purge);
    expect(purge.error).toBeUndefined();
    expect(engine.stored()).toEqual(["kept"]);
    expectRightCounts(engine);
  });

  test("that meets a full disk says so, and can be asked for again", () => {
    const driver = new FaultyDriver();
    const engine = new TestEngine({ directory: tempDirectory(), driver });
    fill(engine, 100);
    engine.clock.advance(10);
    driver.plant({ at: SQL.purgeAcked, error: sqliteError("FULL"), after: 1, times: 100 });
    const purge = engine.purge(1);
    settle(engine, purge);
    driver.heal();
    expect(purge.error).toMatchObject({ code: "DISK_FULL" });
    expectRightCounts(engine);
    const again = engine.purge(1);
    settle(engine, again);
    expect(countRows(engine)).toBe(0);
    expectRightCounts(engine);
  });

  test("keeps the counts right beside a Python client, which lets triggers keep them", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    engine.foreign(PYTHON_INDEX);
    fill(engine, 50);
    settle(engine, engine.reclaim());
    engine.clock.advance(10);
    const purge = engine.purge(1);
    settle(engine, purge);
    expect(purge.answer).toMatchObject({ changed: 50 });
    expectRightCounts(engine);
  });
});

describe("a replay of many dead letters", () => {
  test("brings none back twice, even if it fails again meanwhile", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, 5000, { status: 3 });
    const replay = engine.sweep({ kind: "retryFailed", reason: "rejected" });
    while (!replay.answered) {
      engine.step();
      engine.clock.advance(100);
      engine.foreign("UPDATE messages SET status = 3, failure_reason = 'rejected' WHERE status = 0");
    }
    expect(replay.answer).toMatchObject({ changed: 5000 });
  });

  test("leaves those alone that failed after it began", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, 1000, { status: 3 });
    const replay = engine.sweep({ kind: "retryFailed" });
    engine.step();
    expect(replay.answered).toBe(false);
    fill(engine, 10, { status: 3 });
    settle(engine, replay);
    expect(replay.answer).toMatchObject({ changed: 1000 });
  });

  test("stops where the queue is full", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, 5000, { status: 3 });
    settle(engine, engine.put("one that waits"));
    const replay = engine.sweep({ kind: "retryFailed" }, { maxPending: 3001 });
    settle(engine, replay);
    expect(replay.answer).toMatchObject({ changed: 3000 });
    expectRightCounts(engine);
    const again = engine.sweep({ kind: "retryFailed" }, { maxPending: 3001 });
    settle(engine, again);
    expect(again.answer).toMatchObject({ refused: "full" });
    const none = engine.sweep({ kind: "retryFailed", reason: "handler_timeout" }, { maxPending: 3001 });
    settle(engine, none);
    expect(none.answer).toMatchObject({ changed: 0 });
  });

  test("by an id needs room, too, but first of all the dead letter", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    fill(engine, 1, { status: 3 });
    settle(engine, engine.put("one that waits"));
    const calls = [engine.alter("replay", 1, 1), engine.alter("replay", 2, 1), engine.alter("replay", 1, 2)];
    settle(engine, ...calls);
    expect(calls.map(({ answer }) => answer)).toMatchObject([
      { refused: "full" },
      { refused: "missing" },
      { changed: 1 },
    ]);
    expectRightCounts(engine);
  });
});

describe.each([
  ["did not happen", "nothing"],
  ["happened", "executes"],
] as const)("when a COMMIT fails that %s", (_, really) => {
  test.each(["remove", "replay", "discard"] as const)("%s still tells the truth", (verb) => {
    const driver = new FaultyDriver();
    const engine = new TestEngine({ directory: tempDirectory(), driver });
    fill(engine, 1, { status: 3 });
    settle(engine, engine.put("ready"));
    driver.plant({ at: "COMMIT", error: sqliteError("IOERR_WRITE"), really });
    const call = engine.alter(verb, verb === "remove" ? 2 : 1);
    settle(engine, call);
    expect(call.answer).toMatchObject({ changed: 1 });
    const statuses = engine.rows("SELECT id, status FROM messages ORDER BY id").map(({ id, status }) => [id, status]);
    const after = {
      remove: [[1, 3]],
      replay: [
        [1, 0],
        [2, 0],
      ],
      discard: [[2, 0]],
    };
    expect(statuses).toEqual(after[verb]);
    expectRightCounts(engine);
  });
});
