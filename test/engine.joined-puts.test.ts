import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import type { Call, TestEngine } from "./support/engine-harness.ts";
import { ERROR_FORMS, payloadIs, sqliteError } from "./support/faulty-driver.ts";
import { openFaulty, statsOf } from "./support/faulty-engine.ts";
import { PYTHON_INDEX } from "./support/python-files.ts";

const BEGIN = "BEGIN IMMEDIATE";

function names(count: number, prefix = "job"): string[] {
  return Array.from({ length: count }, (_, i) => `${prefix} ${i}`);
}

function putAll(engine: TestEngine, payloads: readonly string[]): Call[] {
  return payloads.map((payload) => engine.put(payload));
}

/** Each caller's id is that of its own row, and nothing else was stored. */
function expectStored(engine: TestEngine, calls: readonly Call[], payloads: readonly string[]): void {
  const byId = new Map(engine.rows().map(({ id, payload }) => [id, Buffer.from(payload as Uint8Array).toString()]));
  expect(calls.map(({ put }) => byId.get(put?.[0]?.id ?? 0))).toEqual(payloads);
  expect(calls.every(({ put }) => put?.[0]?.inserted === true)).toBe(true);
  expect(byId.size).toBe(payloads.length);
}

describe("many callers that put at once", () => {
  test.each([15, 16, 17, 32, 50])("%i of them get the ids of their own jobs, in the order of their calls", (count) => {
    const { engine, driver } = openFaulty();
    const calls = putAll(engine, names(count));
    engine.run();
    expectStored(engine, calls, names(count));
    expect(engine.stored()).toEqual(names(count));
    expect(driver.count(BEGIN)).toBe(1);
    expect(driver.count(SQL.putRows)).toBe(Math.floor(count / 16));
    expect(driver.count(SQL.put)).toBe(count % 16);
    expect(statsOf(engine)).toEqual({ ready: count, processing: 0, acked: 0, failed: 0 });
  });

  test("keep what is their own: delays, deliveries, traces, bytes", () => {
    const { engine } = openFaulty();
    const commands = Array.from({ length: 20 }, (_, i) => ({
      payload: i % 2 === 0 ? `text ${i}` : new Uint8Array(i),
      delayMs: i % 3 === 0 ? 1000 * i : 0,
      maxAttempts: 1 + i,
      context: i % 5 === 0 ? `trace ${i}` : undefined,
    }));
    for (const { payload, ...options } of commands) engine.put(payload, options);
    engine.run();
    const stored = engine.rows().map((row) => ({
      payload: Buffer.from(row["payload"] as Uint8Array),
      delayMs: (row["available_at"] as number) - (row["created_at"] as number),
      maxAttempts: row["max_attempts"],
      context: row["trace_context"],
    }));
    expect(stored).toEqual(
      commands.map(({ payload, context = null, ...rest }) => ({ ...rest, context, payload: Buffer.from(payload) })),
    );
    expect(engine.rows("SELECT DISTINCT typeof(payload) AS type FROM messages")).toEqual([{ type: "blob" }]);
  });

  test("find the job that has their id already, and it stays one", () => {
    const { engine } = openFaulty();
    engine.put("first", { jobId: "same" });
    const calls = Array.from({ length: 40 }, (_, i) => engine.put(`job ${i}`, i % 10 === 9 ? { jobId: "same" } : {}));
    engine.run();
    expect(calls.filter(({ put }) => put?.[0]?.inserted === false)).toHaveLength(4);
    expect(calls[9]?.put).toEqual([{ id: 1, inserted: false }]);
    expect(statsOf(engine)).toMatchObject({ ready: 37 });
  });

  test("into queues in turns each get the id of their own", () => {
    const { engine } = openFaulty();
    const calls = Array.from({ length: 40 }, (_, i) => engine.put(`job ${i}`, { queue: i < 20 ? "a" : "b" }));
    engine.run();
    expectStored(engine, calls, names(40));
    expect(engine.rows("SELECT queue, count(*) AS jobs FROM messages GROUP BY queue")).toEqual([
      { queue: "a", jobs: 20 },
      { queue: "b", jobs: 20 },
    ]);
  });

  test("into a queue with a limit are let in up to the limit", () => {
    const { engine } = openFaulty();
    const calls = Array.from({ length: 40 }, (_, i) => engine.put(`job ${i}`, { maxPending: 30, waitMs: 0 }));
    engine.run();
    expect(calls.filter(({ put }) => put !== undefined)).toHaveLength(30);
    expect(statsOf(engine)).toMatchObject({ ready: 30 });
  });

  test("are counted right beside Python's triggers", () => {
    const { engine } = openFaulty();
    engine.put("ours");
    engine.run();
    engine.foreign(PYTHON_INDEX);
    const calls = putAll(engine, names(40));
    engine.run();
    expect(calls.map(({ put }) => put?.[0]?.id)).toEqual(Array.from({ length: 40 }, (_, i) => i + 2));
    expect(statsOf(engine)).toMatchObject({ ready: 41 });
    expect(engine.rows("SELECT ready FROM localqueue_counts WHERE queue = 'default'")).toEqual([{ ready: 41 }]);
  });

  test("are flushed to the disk if one of them asks for it", () => {
    const { engine, driver } = openFaulty();
    const flushed = driver.plant({ at: "PRAGMA synchronous = FULL", strikes: () => {} });
    for (const [i, payload] of names(20).entries()) engine.put(payload, { fsync: i === 7 });
    engine.run();
    expect(driver.count(SQL.putRows)).toBe(1);
    expect(driver.count(BEGIN)).toBe(1);
    expect(flushed.struck).toBe(1);
  });

  test("wait together for a lock that is somebody else's, and can be withdrawn singly", () => {
    const { engine, driver } = openFaulty();
    const locked = driver.plant({
      at: BEGIN,
      times: 1,
      error: Object.assign(new Error("busy"), { code: "SQLITE_BUSY" }),
    });
    const calls = putAll(engine, names(40));
    engine.step();
    expect(locked.struck).toBe(1);
    engine.abort(calls[5] as Call);
    engine.run();
    expect(calls[5]?.answer).toMatchObject({ refused: "aborted" });
    const others = calls.filter((call) => call !== calls[5]);
    expectStored(
      engine,
      others,
      names(40).filter((name) => name !== "job 5"),
    );
  });

  test("are told at once when the lock does not come in their time", () => {
    const { engine, driver } = openFaulty();
    const busy = Object.assign(new Error("busy"), { code: "SQLITE_BUSY" });
    driver.plant({ at: BEGIN, times: Number.POSITIVE_INFINITY, error: busy });
    const calls = Array.from({ length: 20 }, (_, i) => engine.put(`job ${i}`, { lockMs: i < 10 ? 100 : 60_000 }));
    engine.step();
    engine.elapse(200);
    expect(calls.map(({ error }) => error?.code)).toEqual([...Array(10).fill("BUSY"), ...Array(10).fill(undefined)]);
    driver.heal();
    engine.run();
    expect(engine.stored()).toEqual(names(20).slice(10));
  });
});

describe.each(ERROR_FORMS)("with errors in the form of $library", ({ error }) => {
  test.each([
    { name: "CONSTRAINT", really: "nothing" },
    { name: "FULL", really: "rolls back" },
    { name: "FULL", really: "nothing" },
  ] as const)("one of many puts fails by itself: $name ($really)", ({ name, really }) => {
    const { engine, driver } = openFaulty();
    const times = Number.POSITIVE_INFINITY;
    for (const at of [SQL.put, SQL.putRows]) {
      driver.plant({ at, with: payloadIs("job 20"), times, error: error(name), really });
    }
    const calls = putAll(engine, names(40));
    engine.run();
    expect(calls[20]?.error).toMatchObject({ outcome: "failed" });
    const others = names(40).filter((payload) => payload !== "job 20");
    expectStored(
      engine,
      calls.filter((call) => call !== calls[20]),
      others,
    );
    expect(engine.stored()).toEqual(others);
    expect(statsOf(engine)).toMatchObject({ ready: 39 });
    expect(driver.autocommitted).toEqual([]);
  });

  test("what fails only together succeeds singly, once", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: SQL.putRows, after: 1, error: error("CONSTRAINT") });
    const calls = putAll(engine, names(40));
    engine.run();
    expectStored(engine, calls, names(40));
    expect(statsOf(engine)).toMatchObject({ ready: 40 });
  });

  test.each(["executes", "nothing"] as const)("and a COMMIT that fails then (%s) is tried as always", (really) => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: SQL.putRows, after: 1, error: error("CONSTRAINT") });
    driver.plant({ at: "COMMIT", error: error("IOERR_FSYNC"), really });
    const calls = putAll(engine, names(40));
    engine.run();
    expectStored(engine, calls, names(40));
  });

  test("a put of many jobs is undone as a whole, and the calls beside it are not", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: SQL.putRows, with: payloadIs("many 30"), error: error("CONSTRAINT") });
    const before = putAll(engine, names(20));
    const many = engine.putMany(names(40, "many"));
    const after = putAll(engine, names(20, "after"));
    engine.run();
    expect(many.error).toMatchObject({ outcome: "failed" });
    expectStored(engine, [...before, ...after], [...names(20), ...names(20, "after")]);
    expect(statsOf(engine)).toMatchObject({ ready: 40 });
  });

  test("a failing device fails them all, and none is stored", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: SQL.putRows, after: 1, error: error("IOERR_WRITE") });
    const calls = putAll(engine, names(40));
    engine.run();
    for (const call of calls) expect(call.error).toMatchObject({ code: "IO", outcome: "failed" });
    expect(engine.stored()).toEqual([]);
    expect(statsOf(engine)).toMatchObject({ ready: 0 });
  });

  test.each(["executes", "nothing"] as const)("a COMMIT that fails (%s) is looked into for all of them", (really) => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: "COMMIT", error: error("IOERR_FSYNC"), really });
    const calls = putAll(engine, names(40));
    engine.run();
    expectStored(engine, calls, names(40));
    expect(statsOf(engine)).toMatchObject({ ready: 40 });
  });
});

describe("with a file that others have changed", () => {
  test("a row that their index keeps out fails its caller alone", () => {
    const { engine } = openFaulty();
    engine.put("job 7");
    engine.run();
    engine.foreign("CREATE UNIQUE INDEX theirs ON messages(queue, payload)");
    const calls = putAll(engine, names(20));
    engine.run();
    expect(calls[7]?.error).toMatchObject({ outcome: "failed" });
    const others = calls.filter((call) => call !== calls[7]);
    const stored = new Map(engine.rows().map(({ id, payload }) => [id, Buffer.from(payload as Uint8Array).toString()]));
    expect(others.map(({ put }) => stored.get(put?.[0]?.id ?? 0))).toEqual(names(20).filter((job) => job !== "job 7"));
    expect(statsOf(engine)).toMatchObject({ ready: 20 });
  });

  test("nothing is put twice when they delete the first row before a failed COMMIT is looked into", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: "COMMIT", error: sqliteError("FULL"), really: "executes" });
    driver.plant({ at: BEGIN, after: 1, strikes: () => engine.foreign("DELETE FROM messages WHERE id = 1") });
    const calls = putAll(engine, names(20));
    engine.run();
    expect(engine.stored()).toEqual(names(20).slice(1));
    expect(calls.map(({ put }) => put?.[0]?.id)).toEqual(calls.map((_, i) => i + 1));
  });
});

test("large payloads do not stay in memory for others to be put with them", () => {
  const { engine, driver } = openFaulty();
  const large = "x".repeat(20_000);
  engine.putMany(Array.from({ length: 20 }, () => large));
  engine.run();
  expect(driver.count(SQL.putRows)).toBe(0);
  expect(engine.stored()).toEqual(Array(20).fill(large));
});
