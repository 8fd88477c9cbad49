import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import type { Call, TestEngine } from "./support/engine-harness.ts";
import { builtInError, ERROR_FORMS, payloadIs, sqliteError } from "./support/faulty-driver.ts";
import { openFaulty, statsOf } from "./support/faulty-engine.ts";

const BEGIN = "BEGIN IMMEDIATE";

function putAll(engine: TestEngine, payloads: readonly string[]): Call[] {
  return payloads.map((payload) => engine.put(payload));
}

describe("a batch", () => {
  test("carries out the commands of many callers in one transaction", () => {
    const { engine, driver } = openFaulty();
    putAll(engine, ["one", "two"]);
    const claim = engine.claim({ limit: 2, waitMs: 100 });
    engine.run();
    const [first, second] = claim.claimed ?? [];
    if (first === undefined || second === undefined) throw new Error("nothing was claimed");
    driver.log.length = 0;

    const puts = putAll(engine, ["three", "four", "five"]);
    const ack = engine.ack(first);
    const extend = engine.extend(second, 20_000);
    const next = engine.claim();
    engine.run();

    expect(driver.count(BEGIN)).toBe(1);
    expect(driver.count("COMMIT")).toBe(1);
    expect(puts.map(({ put }) => put?.[0]?.id)).toEqual([3, 4, 5]);
    expect(ack.answer).toMatchObject({ settled: "acked" });
    expect(extend.answer).toHaveProperty("extended");
    expect(engine.textOf(next.delivery)).toBe("three");
  });

  test("is answered only after its COMMIT has returned", () => {
    const { engine, driver } = openFaulty();
    const puts = putAll(engine, ["a", "b", "c"]);
    const claim = engine.claim();
    let answeredEarly: boolean | undefined;
    const isAnswered = ({ answered }: Call): boolean => answered;
    driver.plant({ at: "COMMIT", strikes: () => (answeredEarly = [...puts, claim].some(isAnswered)) });
    engine.run();
    expect(answeredEarly).toBe(false);
    expect([...puts, claim].every(isAnswered)).toBe(true);
  });

  test("refuses a caller without disturbing the others", () => {
    const { engine, driver } = openFaulty();
    engine.put("job");
    const claim = engine.claim();
    engine.run();
    const lease = claim.delivery;
    driver.log.length = 0;
    const before = engine.put("before");
    const stranger = engine.ack({ ...lease, receipt: "somebody else's" });
    const holder = engine.ack(lease);
    const late = engine.ack(lease);
    const after = engine.put("after");
    engine.run();
    expect(driver.count(BEGIN)).toBe(1);
    expect(stranger.answer).toMatchObject({ refused: "lost" });
    expect(holder.answer).toMatchObject({ settled: "acked" });
    expect(late.answer).toMatchObject({ refused: "lost" });
    expect([before.put, after.put]).toMatchObject([[{ inserted: true }], [{ inserted: true }]]);
  });

  test("never names a writer's memory: equal payloads of a batch stay apart", () => {
    const { engine } = openFaulty();
    putAll(engine, ["same", "same", "same"]);
    engine.run();
    expect(engine.stored()).toEqual(["same", "same", "same"]);
  });
});

describe.each(ERROR_FORMS)("with errors in the form of $library", ({ error }) => {
  describe("a disk that fills up and silently ends the transaction", () => {
    test("fails its culprit alone; the others are committed exactly once", () => {
      const { engine, driver } = openFaulty();
      engine.put("leased");
      const claim = engine.claim();
      engine.run();
      driver.log.length = 0;
      driver.plant({
        at: SQL.put,
        with: payloadIs("culprit"),
        times: Number.POSITIVE_INFINITY,
        error: error("FULL"),
        really: "rolls back",
      });
      const ack = engine.ack(claim.delivery);
      const [a, culprit, b, c] = putAll(engine, ["a", "culprit", "b", "c"]);
      engine.run();

      expect(driver.autocommitted).toEqual([]);
      expect(culprit?.error).toMatchObject({ code: "DISK_FULL", outcome: "failed" });
      expect(ack.answer).toMatchObject({ settled: "acked" });
      expect(engine.stored()).toEqual(["leased", "a", "b", "c"]);
      const ids = engine.rows().map(({ id }) => id);
      expect([a, b, c].map((call) => call?.put?.[0]?.id)).toEqual(ids.slice(1));
      expect(driver.count("COMMIT")).toBe(1);
      expect(statsOf(engine)).toEqual({ ready: 3, processing: 0, acked: 1, failed: 0 });
    });

    test.each([2, 4, 7])("fails %i culprits and nobody else", (culprits) => {
      const { engine, driver } = openFaulty();
      driver.plant({
        at: SQL.put,
        with: payloadIs("culprit"),
        times: Number.POSITIVE_INFINITY,
        error: error("FULL"),
        really: "rolls back",
      });
      const calls: Call[] = [];
      for (let i = 0; i < culprits; i++) calls.push(...putAll(engine, [`good ${i}`, "culprit", "culprit"].slice(0, 2)));
      const last = engine.put("last");
      engine.run();

      expect(driver.autocommitted).toEqual([]);
      const failed = calls.filter((call) => call.error !== undefined);
      expect(failed).toHaveLength(culprits);
      for (const call of failed) expect(call.error).toMatchObject({ code: "DISK_FULL", outcome: "failed" });
      expect(engine.stored()).toEqual([...Array.from({ length: culprits }, (_, i) => `good ${i}`), "last"]);
      expect(last.put?.[0]?.id).toBe(engine.rows().at(-1)?.["id"]);
      expect(statsOf(engine)).toMatchObject({ ready: culprits + 1 });
    });

    test("fails a claim, and leaves the job for the next one", () => {
      const { engine, driver } = openFaulty();
      engine.put("job");
      engine.run();
      driver.plant({ at: SQL.claim, error: error("FULL"), really: "rolls back" });
      const put = engine.put("another");
      const claim = engine.claim();
      engine.run();
      expect(claim.error).toMatchObject({ code: "DISK_FULL", outcome: "failed" });
      expect(put.put).toMatchObject([{ inserted: true }]);
      expect(engine.rows().map(({ status, attempts }) => [status, attempts])).toEqual([
        [0, 0],
        [0, 0],
      ]);
      const next = engine.claim();
      engine.run();
      expect(engine.textOf(next.delivery)).toBe("job");
    });
  });

  test("a statement that fails while the transaction stands concerns its caller only", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: SQL.put, with: payloadIs("culprit"), error: error("CONSTRAINT") });
    const [a, culprit, b] = putAll(engine, ["a", "culprit", "b"]);
    engine.run();
    expect(driver.count(BEGIN)).toBe(1);
    expect(culprit?.error).toMatchObject({ outcome: "failed" });
    expect([a?.put, b?.put]).toMatchObject([[{ inserted: true }], [{ inserted: true }]]);
    expect(engine.stored()).toEqual(["a", "b"]);
    expect(statsOf(engine)).toMatchObject({ ready: 2 });
  });

  test("a put of several jobs that fails half-way is undone alone", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: SQL.put, with: payloadIs("third"), error: error("CONSTRAINT") });
    const before = engine.put("before");
    const many = engine.putMany(["first", "second", "third", "fourth"]);
    const after = engine.put("after");
    engine.run();
    expect(driver.count(BEGIN)).toBe(1);
    expect(many.error).toMatchObject({ outcome: "failed" });
    expect([before.put, after.put]).toMatchObject([[{ inserted: true }], [{ inserted: true }]]);
    expect(engine.stored()).toEqual(["before", "after"]);
    expect(statsOf(engine)).toMatchObject({ ready: 2 });
  });

  test.each([
    ["IOERR_WRITE", "IO"],
    ["CORRUPT", "CORRUPT"],
    ["NOTADB", "NOT_A_DATABASE"],
    ["NOMEM", "IO"],
  ] as const)("%s in the middle of a batch fails all of it; the next one has a new connection", (name, code) => {
    const { engine, driver } = openFaulty();
    const opened = driver.opened;
    driver.plant({ at: SQL.put, with: payloadIs("b"), error: error(name) });
    const puts = putAll(engine, ["a", "b", "c"]);
    engine.run();
    for (const put of puts) expect(put.error).toMatchObject({ code, outcome: "failed" });
    expect(engine.stored()).toEqual([]);

    const next = engine.put("next");
    engine.run();
    expect(next.put).toMatchObject([{ inserted: true }]);
    expect(driver.opened).toBe(opened + 1);
    expect(engine.stored()).toEqual(["next"]);
    expect(statsOf(engine)).toMatchObject({ ready: 1 });
    expect(driver.autocommitted).toEqual([]);
  });

  test("an input/output error at BEGIN fails the batch; the next one has a new connection", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: BEGIN, error: error("IOERR_WRITE") });
    const put = engine.put("a");
    const claim = engine.claim();
    engine.run();
    expect(put.error).toMatchObject({ code: "IO", outcome: "failed" });
    expect(claim.error).toMatchObject({ code: "IO", outcome: "failed" });
    const next = engine.put("next");
    engine.run();
    expect(next.put).toMatchObject([{ inserted: true }]);
    expect(driver.opened).toBe(2);
  });
});

test("a claim whose row cannot be read is undone, and the others of the batch are not", () => {
  const { engine, driver } = openFaulty();
  engine.put("job");
  engine.run();
  const unreadable = new RangeError("The value is too large to be represented as a JavaScript number");
  driver.plant({ at: SQL.claim, error: unreadable, really: "executes" });
  const put = engine.put("another");
  const claim = engine.claim();
  engine.run();
  expect(claim.error).toMatchObject({ outcome: "failed" });
  expect(put.put).toMatchObject([{ inserted: true }]);
  expect(engine.rows().map(({ status, attempts, receipt }) => ({ status, attempts, receipt }))).toEqual([
    { status: 0, attempts: 0, receipt: null },
    { status: 0, attempts: 0, receipt: null },
  ]);
  expect(statsOf(engine)).toMatchObject({ ready: 2, processing: 0 });

  const next = engine.claim();
  engine.run();
  expect(next.delivery).toMatchObject({ id: 1, attempt: 1 });
});

test("a job that does not fit on the disk is refused; smaller ones go on being stored", () => {
  const { engine, driver } = openFaulty();
  engine.put("first");
  engine.run();
  driver.limitPages(100);
  const [before, after] = [engine.put("before"), engine.put("after")];
  const large = engine.put("x".repeat(900_000));
  const last = engine.put("last");
  engine.run();
  expect(large.error).toMatchObject({ code: "DISK_FULL", outcome: "failed" });
  expect([before.put, after.put, last.put]).toMatchObject(Array(3).fill([{ inserted: true }]));
  expect(engine.stored()).toEqual(["first", "before", "after", "last"]);
  expect(driver.autocommitted).toEqual([]);

  driver.limitPages(100_000);
  const again = engine.put("x".repeat(900_000));
  engine.run();
  expect(again.put).toMatchObject([{ inserted: true }]);
  expect(statsOf(engine)).toMatchObject({ ready: 5 });
});

describe("outside a transaction", () => {
  test("counts that cannot be read are reported to whoever asked for them", () => {
    const { engine, driver } = openFaulty();
    engine.put("job");
    engine.run();
    driver.plant({ at: SQL.stats, error: sqliteError("IOERR_WRITE") });
    const [first, second] = [engine.stats(), engine.stats()];
    engine.run();
    expect(first.error).toMatchObject({ code: "IO" });
    expect(second.answered).toBe(true);
    expect(statsOf(engine)).toMatchObject({ ready: 1 });
  });

  test("a look at the queue that fails is reported to whoever waits; then the file is opened anew", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: SQL.look, error: builtInError("IOERR_WRITE") });
    const claim = engine.claim({ waitMs: 60_000 });
    engine.run();
    expect(claim.error).toMatchObject({ code: "IO", outcome: "failed" });
    const put = engine.put("job");
    engine.run();
    expect(put.put).toMatchObject([{ inserted: true }]);
    expect(driver.opened).toBe(2);
  });

  test("a failing look for a clock that went back loses no caller", () => {
    const { engine, driver } = openFaulty();
    engine.put("job");
    engine.run();
    driver.plant({ at: SQL.queues, error: sqliteError("IOERR_WRITE") });
    engine.clock.wall -= 3_600_000;
    const put = engine.put("another");
    engine.run();
    expect(put.answered).toBe(true);
    const next = engine.put("next");
    engine.run();
    expect(next.put).toMatchObject([{ inserted: true }]);
  });

  test.each([
    ["NOOP", "FULL"],
    ["NOOP", "IOERR_WRITE"],
    ["PASSIVE", "FULL"],
    ["PASSIVE", "IOERR_WRITE"],
  ] as const)("a checkpoint (%s) that reports %s fails no caller", (mode, name) => {
    const { engine, driver } = openFaulty();
    const checkpoint = driver.plant({ at: `PRAGMA wal_checkpoint(${mode})`, error: sqliteError(name) });
    const large = "x".repeat(1_000_000);
    const puts = putAll(engine, Array(24).fill(large));
    const claim = engine.claim({ queue: "another", waitMs: 60_000 });
    engine.run();
    expect(checkpoint.struck).toBe(1);
    expect(puts.map(({ error }) => error)).toEqual(Array(24).fill(undefined));
    expect(claim.answered).toBe(false);
  });
});
