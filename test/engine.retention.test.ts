import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import { type TestConsumer, TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver, sqliteError } from "./support/faulty-driver.ts";
import { tempDirectory } from "./support/temp.ts";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const AGES = { ackedMs: DAY, failedMs: 10 * DAY };

interface Rest {
  readonly restMs: number;
  readonly heldMs: number;
}

function open(): { engine: TestEngine; driver: FaultyDriver } {
  const driver = new FaultyDriver();
  return { driver, engine: new TestEngine({ directory: tempDirectory(), driver, realHold: true }) };
}

/** Rows that were finished so long ago. */
function finished(engine: TestEngine, agoMs: number, { status = 2, rows = 1, queue = "default" } = {}): void {
  const at = engine.clock.wall - agoMs;
  engine.foreign(`BEGIN IMMEDIATE;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows})
    INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at)
      SELECT '${queue}', x'31', ${status}, 1, 4, ${at}, ${at}, ${at} FROM n;
    INSERT INTO localqueue_counts (queue, acked, failed) VALUES ('${queue}', ${status === 2 ? rows : 0}, ${status === 3 ? rows : 0})
      ON CONFLICT DO UPDATE SET acked = acked + excluded.acked, failed = failed + excluded.failed;
    COMMIT`);
}

function ids(engine: TestEngine): unknown[] {
  return engine.rows("SELECT id FROM messages ORDER BY id").map(({ id }) => id);
}

function keeper(engine: TestEngine, retention: { ackedMs?: number; failedMs?: number } = AGES): TestConsumer {
  return engine.consume({ retention });
}

describe("with a worker on a queue that has a retention", () => {
  test("finished jobs go when they are too old, and no others", () => {
    const { engine } = open();
    finished(engine, 11 * DAY);
    finished(engine, 11 * DAY, { status: 3 });
    finished(engine, 11 * DAY, { queue: "another" });
    finished(engine, 2 * DAY);
    finished(engine, 2 * DAY, { status: 3 });
    finished(engine, DAY - MINUTE);
    keeper(engine);
    engine.elapse(5 * SECOND);
    expect(ids(engine)).toEqual([3, 5, 6]);
    expect(engine.rows("SELECT acked, failed FROM localqueue_counts WHERE queue = 'default'")).toEqual([
      { acked: 1, failed: 1 },
    ]);
  });

  test("the next pass comes a minute later", () => {
    const { engine } = open();
    keeper(engine);
    engine.elapse(5 * SECOND);
    finished(engine, 2 * DAY);
    engine.elapse(40 * SECOND);
    expect(ids(engine)).toEqual([1]);
    engine.elapse(30 * SECOND);
    expect(ids(engine)).toEqual([]);
  });

  test.each([
    [{ ackedMs: 0 }, [2]],
    [{ failedMs: 0 }, [1]],
    [{}, [1, 2]],
  ])("%o leaves the jobs with the ids %o", (retention, left) => {
    const { engine } = open();
    finished(engine, 5);
    finished(engine, 5, { status: 3 });
    keeper(engine, retention);
    engine.elapse(5 * SECOND);
    expect(ids(engine)).toEqual(left);
  });

  test("of two workers, the one that keeps less decides; when it is gone, the other", () => {
    const { engine } = open();
    keeper(engine, { ackedMs: 10 * DAY });
    const impatient = keeper(engine, { ackedMs: DAY });
    finished(engine, 2 * DAY);
    engine.elapse(5 * SECOND);
    expect(ids(engine)).toEqual([]);
    impatient.dismiss();
    finished(engine, 2 * DAY);
    finished(engine, 11 * DAY);
    engine.elapse(2 * MINUTE);
    expect(ids(engine)).toEqual([2]);
  });

  test("nothing goes once the worker is gone", () => {
    const { engine } = open();
    keeper(engine).dismiss();
    finished(engine, 2 * DAY);
    engine.elapse(5 * MINUTE);
    expect(ids(engine)).toEqual([1]);
  });

  test("a pass looks no further than to the first jobs that are too young", () => {
    const { engine, driver } = open();
    finished(engine, 2 * DAY, { rows: 10 });
    finished(engine, MINUTE, { rows: 20_000 });
    driver.log.length = 0;
    keeper(engine);
    engine.elapse(50 * SECOND);
    expect(ids(engine)).toHaveLength(20_000);
    expect(driver.count(SQL.purgeAcked)).toBe(1);
  });

  test("rows from a time when the clock was ahead are in nobody's way", () => {
    const { engine } = open();
    finished(engine, -400 * DAY, { rows: 5000 });
    finished(engine, 2 * DAY);
    keeper(engine);
    engine.elapse(50 * SECOND);
    expect(ids(engine)).toHaveLength(5000);
  });

  test("it takes a hundredth of the time while others are at work, and more when they are not", () => {
    const { engine, driver } = open();
    finished(engine, 2 * DAY, { rows: 100_000 });
    keeper(engine);
    engine.elapse(900);
    for (const { restMs, heldMs } of rests(engine, driver, 4, () => engine.put("work"))) {
      expect(restMs).toBeGreaterThanOrEqual(99 * heldMs - 1);
      // A little later, since others go first.
      expect(restMs).toBeLessThanOrEqual(99 * heldMs + 110);
    }
    engine.clock.advance(2000);
    engine.tick();
    for (const { restMs, heldMs } of rests(engine, driver, 4)) expect(restMs).toBeLessThanOrEqual(4 * heldMs + 5);
  });

  test("a clock that is set forward makes nothing old for an hour", () => {
    const { engine } = open();
    keeper(engine);
    finished(engine, HOUR);
    engine.elapse(90 * SECOND);
    engine.clock.wall += 30 * DAY;
    engine.elapse(59 * MINUTE);
    expect(ids(engine)).toEqual([1]);
    // Nobody set it right: so be it.
    engine.elapse(5 * MINUTE);
    expect(ids(engine)).toEqual([]);
  });

  test("a clock that was set forward and back again did no harm", () => {
    const { engine } = open();
    keeper(engine);
    finished(engine, HOUR);
    engine.elapse(90 * SECOND);
    engine.clock.wall += 30 * DAY;
    engine.elapse(10 * MINUTE);
    engine.clock.wall -= 30 * DAY;
    engine.elapse(3 * HOUR);
    expect(ids(engine)).toEqual([1]);
  });

  test("a fault ends the pass, harms nobody, and the next pass makes up for it", () => {
    const { engine, driver } = open();
    finished(engine, 2 * DAY);
    driver.plant({ at: SQL.purgeAcked, error: sqliteError("CONSTRAINT") });
    keeper(engine);
    engine.elapse(5 * SECOND);
    expect(ids(engine)).toEqual([1]);
    const put = engine.put("job");
    engine.elapse(MINUTE);
    expect(put.put).toEqual([{ id: 2, inserted: true }]);
    expect(ids(engine)).toEqual([2]);
  });
});

/** How long nothing was removed after each slice, and how long that had held the lock; `work` is done every 5 ms. */
function rests(engine: TestEngine, driver: FaultyDriver, count: number, work?: () => void): Rest[] {
  const list: Rest[] = [];
  let last: { at: number; heldMs: number } | undefined;
  for (let steps = 0; list.length < count; steps++) {
    if (steps > 100_000) throw new Error("nothing is removed");
    work?.();
    const { monotonic: at } = engine.clock;
    driver.log.length = 0;
    const wait = engine.step();
    if (driver.log.includes(SQL.purgeAcked)) {
      if (last !== undefined) list.push({ restMs: at - last.at, heldMs: last.heldMs });
      last = { at, heldMs: engine.connection.heldMs };
    }
    engine.clock.advance(work === undefined ? Math.max(1, Math.ceil(wait)) : 5);
    engine.tick();
  }
  return list;
}
