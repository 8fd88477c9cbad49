import { statSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { openDatabase } from "./support/database.ts";
import { TestEngine } from "./support/engine-harness.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const MIB = 1024 * 1024;

/** So many jobs, about a page each, are put and deleted again, but for one in `keep`. */
const fillAndPurge = (jobs: number, keep: number): string => `BEGIN;
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${jobs})
    INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at)
      SELECT 'default', CAST(i || hex(zeroblob(1800)) AS BLOB), 2, 1, 4, 1, 1, 1 FROM n;
  COMMIT;
  DELETE FROM messages WHERE id % ${keep} <> 0;
  DELETE FROM localqueue_counts;
  INSERT INTO localqueue_counts SELECT queue, 0, 0, count(*), 0, 1 FROM messages GROUP BY queue;`;

function pragma(directory: string, name: string): number {
  return Number(Object.values(select(directory, `PRAGMA ${name}`)[0] ?? {})[0]);
}

function fileSize(directory: string): number {
  return statSync(path.join(directory, "localqueue.db")).size;
}

describe("an engine with nothing to do", () => {
  test("gives the space of deleted jobs back, down to an eighth of the file, and then sleeps for ever", () => {
    const directory = tempDirectory();
    const engine = new TestEngine({ directory, realHold: true });
    engine.foreign(fillAndPurge(10_000, 10));
    engine.foreign("PRAGMA wal_checkpoint(TRUNCATE)");
    const rows = engine.rows("SELECT id, hex(payload) AS payload FROM messages ORDER BY id");
    const before = fileSize(directory);
    expect(before).toBeGreaterThan(35 * MIB);
    // It notices that somebody else has written when it next writes.
    engine.put("a job");
    engine.run();
    engine.elapse(60_000);
    expect(fileSize(directory)).toBeLessThan(before / 3);
    expect(pragma(directory, "freelist_count")).toBeGreaterThan(1000);
    expect(engine.step()).toBe(Number.POSITIVE_INFINITY);
    expect(engine.rows("SELECT id, hex(payload) AS payload FROM messages ORDER BY id LIMIT 1000")).toEqual(rows);
    expect(faultsOf(directory)).toEqual([]);
  });

  test("does so in slices, with pauses in which it does what is asked of it at once", () => {
    const directory = tempDirectory();
    const engine = new TestEngine({ directory, realHold: true });
    engine.foreign(fillAndPurge(10_000, 10));
    engine.put("a job");
    engine.run();
    let pages = pragma(directory, "page_count");
    let slices = 0;
    for (let wait = 0; wait < Number.POSITIVE_INFINITY; ) {
      wait = engine.step();
      const now = pragma(directory, "page_count");
      if (now < pages) {
        slices++;
        expect(pages - now).toBeLessThanOrEqual(520);
        expect(wait).toBe(20);
        const call = engine.put("another");
        engine.step();
        expect(call.answered).toBe(true);
      }
      pages = pragma(directory, "page_count");
      engine.tick();
      engine.clock.advance(Math.min(wait, 1000));
    }
    expect(slices).toBeGreaterThan(8);
  });

  test("leaves a file alone that has little to give back, or was made by an older version", () => {
    const small = tempDirectory();
    const engine = new TestEngine({ directory: small });
    engine.foreign(fillAndPurge(3000, 10));
    engine.put("a job");
    engine.run();
    const pages = pragma(small, "page_count");
    engine.elapse(60_000);
    expect(pragma(small, "page_count")).toBe(pages);
    expect(engine.step()).toBe(Number.POSITIVE_INFINITY);

    const old = tempDirectory();
    const database = openDatabase(old);
    database.exec("CREATE TABLE other (text)");
    database.close();
    const second = new TestEngine({ directory: old });
    second.foreign(fillAndPurge(10_000, 10));
    second.put("a job");
    second.run();
    const oldPages = pragma(old, "page_count");
    second.elapse(60_000);
    expect(pragma(old, "page_count")).toBe(oldPages);
    expect(second.step()).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("an engine with something to do", () => {
  test("does that first", () => {
    const directory = tempDirectory();
    const engine = new TestEngine({ directory, realHold: true });
    engine.foreign(fillAndPurge(10_000, 10));
    const free = pragma(directory, "freelist_count");
    for (let n = 0; n < 500; n++) {
      engine.put("a job");
      engine.step();
      engine.clock.advance(20);
    }
    expect(pragma(directory, "freelist_count")).toBeGreaterThan(free - 300);
  });

  test("another program that has the file open meanwhile, as a Python client may, is not troubled", () => {
    const directory = tempDirectory();
    const engine = new TestEngine({ directory, realHold: true });
    engine.foreign(fillAndPurge(10_000, 10));
    const other = openDatabase(directory);
    const count = other.prepare("SELECT count(*) AS jobs FROM messages");
    const move = other.prepare("UPDATE messages SET last_error = last_error || 'x' WHERE id = :id");
    engine.put("a job");
    engine.run();
    for (let round = 0; round < 200; round++) {
      engine.elapse(100);
      expect(count.get()).toEqual({ jobs: 1001 });
      move.run({ id: 10 * (round + 1) });
    }
    expect(pragma(directory, "page_count")).toBeLessThan(6000);
    other.close();
    expect(faultsOf(directory)).toEqual([]);
  });
});

test("the file of an idle queue becomes smaller on the disk after another process deleted jobs", async () => {
  const directory = tempDirectory();
  const queue = openQueue({ location: directory });
  await queue.put("a job");
  const database = openDatabase(directory);
  database.exec(fillAndPurge(10_000, 10));
  database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  database.close();
  const before = fileSize(directory);
  await queue.put("another");
  await until(() => fileSize(directory) < before / 3, 30_000);
  await queue.put("a third");
  expect(faultsOf(directory)).toEqual([]);
}, 40_000);
