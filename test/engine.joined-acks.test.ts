import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import type { Delivery } from "../dist/storage/storage.js";
import type { Call, TestEngine } from "./support/engine-harness.ts";
import { ERROR_FORMS } from "./support/faulty-driver.ts";
import { openFaulty, statsOf } from "./support/faulty-engine.ts";
import { PYTHON_INDEX } from "./support/python-files.ts";

const BEGIN = "BEGIN IMMEDIATE";
const LEASE_MS = 10_000;

/** An engine with so many deliveries under way. */
function openWith(count: number): ReturnType<typeof openFaulty> & { deliveries: readonly Delivery[] } {
  const opened = openFaulty();
  opened.engine.putMany(Array.from({ length: count }, (_, i) => `job ${i}`));
  const claim = opened.engine.claim({ limit: count, leaseMs: LEASE_MS });
  opened.engine.run();
  opened.driver.log.length = 0;
  return { ...opened, deliveries: claim.claimed ?? [] };
}

function ackAll(engine: TestEngine, deliveries: readonly Delivery[]): Call[] {
  return deliveries.map((delivery) => engine.ack(delivery));
}

const ACKED = { settled: "acked" };
const LOST = { refused: "lost" };

function expectAllBut(calls: readonly Call[], lost: readonly number[]): void {
  for (const [i, { answer }] of calls.entries())
    expect(answer, `ack ${i}`).toMatchObject(lost.includes(i) ? LOST : ACKED);
}

describe("many callers that acknowledge at once", () => {
  test.each([15, 16, 17, 32, 50])("%i of them are answered after one transaction", (count) => {
    const { engine, driver, deliveries } = openWith(count);
    const calls = ackAll(engine, deliveries);
    engine.run();
    expectAllBut(calls, []);
    expect(driver.count(BEGIN)).toBe(1);
    expect(driver.count(SQL.ackRows)).toBe(Math.floor(count / 16));
    expect(driver.count(SQL.ack)).toBe(count % 16);
    expect(statsOf(engine)).toEqual({ ready: 0, processing: 0, acked: count, failed: 0 });
    const { wall } = engine.clock;
    expect(engine.rows("SELECT DISTINCT status, receipt, lease_until, updated_at FROM messages")).toEqual([
      { status: 2, receipt: null, lease_until: null, updated_at: wall },
    ]);
  });

  test("are told singly who has lost the lease", () => {
    const { engine, deliveries } = openWith(40);
    engine.foreign(
      `UPDATE messages SET receipt = 'of somebody else' WHERE id IN (${deliveries[3]?.id}, ${deliveries[20]?.id})`,
    );
    const calls = ackAll(engine, deliveries);
    engine.run();
    expectAllBut(calls, [3, 20]);
    expect(statsOf(engine)).toEqual({ ready: 0, processing: 2, acked: 38, failed: 0 });
  });

  test("are too late, all of them, when their leases have ended", () => {
    const { engine, deliveries } = openWith(20);
    engine.clock.advance(LEASE_MS);
    const calls = ackAll(engine, deliveries);
    engine.step();
    for (const { answer } of calls) expect(answer).toMatchObject(LOST);
  });

  test("can acknowledge a delivery once", () => {
    const { engine, deliveries } = openWith(20);
    const calls = ackAll(engine, [...deliveries, ...deliveries.slice(0, 5)]);
    engine.run();
    expectAllBut(calls, [20, 21, 22, 23, 24]);
    expect(statsOf(engine)).toMatchObject({ acked: 20 });
  });

  test("need the receipt of their own job: that of another one in the same statement is none", () => {
    const { engine, deliveries } = openWith(20);
    const swapped = deliveries.map((delivery, i) => {
      const other = i === 4 ? 9 : i === 9 ? 4 : i;
      return { ...delivery, receipt: deliveries[other]?.receipt ?? "" };
    });
    const calls = ackAll(engine, swapped);
    engine.run();
    expectAllBut(calls, [4, 9]);
  });

  test("settle what is of their own queue alone", () => {
    const { engine, deliveries } = openWith(20);
    engine.foreign(`UPDATE messages SET queue = 'another' WHERE id = ${deliveries[7]?.id}`);
    const calls = ackAll(engine, deliveries);
    engine.run();
    expectAllBut(calls, [7]);
  });

  test("keep their place among what else is asked about the same delivery", () => {
    const { engine, deliveries } = openWith(40);
    const before = ackAll(engine, deliveries.slice(0, 20));
    const [late, extended] = [deliveries[20], deliveries[21]] as [Delivery, Delivery];
    const extend = engine.extend(extended, 60_000);
    const release = engine.settle(late, { event: "release" });
    const after = ackAll(engine, deliveries.slice(20));
    engine.run();
    expect(extend.answer).toMatchObject({ extended: expect.any(Number) });
    expect(release.answer).toMatchObject({ settled: "ready" });
    expectAllBut([...before, ...after], [20]);
  });

  test("are counted right beside Python's triggers", () => {
    const { engine, deliveries } = openWith(40);
    engine.foreign(PYTHON_INDEX);
    ackAll(engine, deliveries);
    engine.run();
    expect(statsOf(engine)).toEqual({ ready: 0, processing: 0, acked: 40, failed: 0 });
  });

  test("wait together for a lock that is somebody else's", () => {
    const { engine, driver, deliveries } = openWith(40);
    const busy = Object.assign(new Error("busy"), { code: "SQLITE_BUSY" });
    const locked = driver.plant({ at: BEGIN, times: 1, error: busy });
    const calls = ackAll(engine, deliveries);
    engine.run();
    expect(locked.struck).toBe(1);
    expectAllBut(calls, []);
  });
});

describe.each(ERROR_FORMS)("with errors in the form of $library", ({ error }) => {
  test("what fails only together succeeds singly, once", () => {
    const { engine, driver, deliveries } = openWith(40);
    driver.plant({ at: SQL.ackRows, after: 1, error: error("CONSTRAINT") });
    const calls = ackAll(engine, deliveries);
    engine.run();
    expectAllBut(calls, []);
    expect(statsOf(engine)).toMatchObject({ processing: 0, acked: 40 });
  });

  test("one of many acks fails by itself, and can be tried again", () => {
    const { engine, driver, deliveries } = openWith(40);
    const times = Number.POSITIVE_INFINITY;
    driver.plant({ at: SQL.ackRows, times, error: error("CONSTRAINT") });
    driver.plant({ at: SQL.ack, with: ({ id }) => id === deliveries[20]?.id, times, error: error("CONSTRAINT") });
    const calls = ackAll(engine, deliveries);
    engine.run();
    expect(calls[20]?.error).toMatchObject({ outcome: "failed" });
    expectAllBut(calls.toSpliced(20, 1), []);
    expect(statsOf(engine)).toMatchObject({ processing: 1, acked: 39 });
    driver.heal();
    const again = engine.ack(deliveries[20] as Delivery);
    engine.run();
    expect(again.answer).toMatchObject(ACKED);
  });

  test("a failing device fails them all, and none is acknowledged", () => {
    const { engine, driver, deliveries } = openWith(40);
    driver.plant({ at: SQL.ackRows, after: 1, error: error("IOERR_WRITE") });
    const calls = ackAll(engine, deliveries);
    engine.run();
    for (const call of calls) expect(call.error).toMatchObject({ code: "IO", outcome: "failed" });
    expect(statsOf(engine)).toMatchObject({ processing: 40, acked: 0 });
  });

  test.each(["executes", "nothing"] as const)("a COMMIT that fails (%s) is looked into for all of them", (really) => {
    const { engine, driver, deliveries } = openWith(40);
    driver.plant({ at: "COMMIT", error: error("IOERR_FSYNC"), really });
    const calls = ackAll(engine, deliveries);
    engine.run();
    expectAllBut(calls, []);
    expect(statsOf(engine)).toMatchObject({ acked: 40 });
  });

  test("a job that somebody else ended while a COMMIT failed is lost, and it alone", () => {
    const { engine, driver, deliveries } = openWith(20);
    driver.plant({ at: "COMMIT", error: error("IOERR_FSYNC"), really: "nothing" });
    const { wall } = engine.clock;
    driver.plant({
      at: BEGIN,
      after: 1,
      strikes: () =>
        engine.foreign(
          `UPDATE messages SET status = 2, receipt = NULL, updated_at = ${wall} WHERE id = ${deliveries[0]?.id}`,
        ),
    });
    const calls = ackAll(engine, deliveries);
    engine.run();
    expectAllBut(calls, [0]);
  });
});
