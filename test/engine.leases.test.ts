import { describe, expect, test } from "vitest";
import { SLOT } from "../dist/storage/handler-cells.js";
import { SQL } from "../dist/storage/sqlite/statements.js";
import type { Delivery } from "../dist/storage/storage.js";
import { type TestConsumer, TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver, sqliteError } from "./support/faulty-driver.ts";
import { tempDirectory } from "./support/temp.ts";

const LEASE_MS = 10_000;

function open(): { engine: TestEngine; driver: FaultyDriver } {
  const driver = new FaultyDriver();
  return { driver, engine: new TestEngine({ directory: tempDirectory(), driver }) };
}

/** An engine with a job whose handler runs. */
function openWithHandler(settings: Parameters<TestEngine["consume"]>[0] = {}): {
  engine: TestEngine;
  driver: FaultyDriver;
  consumer: TestConsumer;
  delivery: Delivery;
} {
  const { engine, driver } = open();
  engine.put("job");
  const consumer = engine.consume({ leaseMs: LEASE_MS, ...settings });
  const delivery = consumer.work();
  return { engine, driver, consumer, delivery };
}

/** How long the first job's lease still lasts. */
function remaining(engine: TestEngine): number {
  return Number(engine.rows()[0]?.["lease_until"]) - engine.clock.wall;
}

describe("a consumer's lease", () => {
  test("is renewed for as long as the client lives", () => {
    const { engine, delivery } = openWithHandler();
    for (let minute = 0; minute < 5; minute++) {
      engine.elapse(60_000);
      expect(remaining(engine)).toBeGreaterThan(LEASE_MS / 2);
    }
    const renewed = engine.news.filter(({ news }) => news === "renewed");
    expect(renewed.at(-1)).toMatchObject({ receipt: delivery.receipt, leaseUntil: engine.rows()[0]?.["lease_until"] });
    expect(renewed.length).toBe(engine.news.length);
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("is renewed on when its handler has ended in time and its ack waits for the lock, for however long", () => {
    const { engine, consumer, delivery } = openWithHandler({ timeoutMs: 3000, graceMs: 1000 });
    engine.elapse(2000);
    consumer.cells[0] = SLOT.ended;
    engine.elapse(60_000);
    expect(remaining(engine)).toBeGreaterThan(LEASE_MS / 2);
    expect(new Set(engine.news.map(({ news }) => news))).toEqual(new Set(["renewed"]));
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("is renewed on after an ack that is undone, because what it emits is in conflict", () => {
    const { engine, delivery } = openWithHandler();
    engine.dispatch([{ queues: ["other"], identity: { key: "k", fingerprint: "f" } }]);
    const emit = engine.emit(delivery, [{ queues: ["other"], jobId: "2", identity: { key: "k", fingerprint: "g" } }]);
    engine.run();
    expect(emit.answer).toMatchObject({ conflict: { jobId: "2", queue: "other" } });
    engine.elapse(60_000);
    expect(remaining(engine)).toBeGreaterThan(LEASE_MS / 2);
    engine.emit(delivery, [{ queues: ["other"], jobId: "3" }]);
    engine.elapse(60_000);
    expect(engine.rows()[0]).toMatchObject({ status: 2 });
    expect(engine.news.every(({ news }) => news === "renewed")).toBe(true);
  });

  test("is no longer renewed once the delivery is settled", () => {
    const { engine, driver, delivery } = openWithHandler();
    engine.ack(delivery);
    engine.run();
    driver.log.length = 0;
    engine.elapse(60_000);
    expect(driver.log).toEqual([]);
    expect(engine.news).toEqual([]);
  });

  test("is not renewed without a heartbeat; the consumer is told when it is over", () => {
    const { engine, delivery } = openWithHandler({ heartbeatMs: false });
    engine.elapse(LEASE_MS - 100);
    expect(engine.news).toEqual([]);
    engine.elapse(200);
    expect(engine.news).toMatchObject([{ receipt: delivery.receipt, news: "lost" }]);
    const again = engine.claim();
    engine.run();
    expect(again.delivery).toMatchObject({ id: delivery.id, attempt: 2 });
  });

  test("without a heartbeat lasts as long as the holder extended it", () => {
    const { engine, delivery } = openWithHandler({ heartbeatMs: false });
    engine.extend(delivery, 3 * LEASE_MS);
    engine.run();
    engine.elapse(2 * LEASE_MS);
    expect(engine.news).toEqual([]);
    expect(remaining(engine)).toBeGreaterThan(LEASE_MS / 2);
    engine.elapse(LEASE_MS);
    expect(engine.news).toMatchObject([{ news: "lost" }]);
  });

  test("that the holder shortened is renewed before it is over", () => {
    const { engine, delivery } = openWithHandler();
    engine.extend(delivery, 300);
    engine.run();
    for (let i = 0; i < 10; i++) {
      engine.elapse(100);
      expect(remaining(engine)).toBeGreaterThan(0);
    }
    expect(engine.news.map(({ news }) => news)).not.toContain("lost");
  });

  test("that ended while the file was locked is revived if nobody took the job", () => {
    const { engine, driver, delivery } = openWithHandler();
    driver.plant({
      at: "BEGIN IMMEDIATE",
      times: (2 * LEASE_MS) / 50,
      error: sqliteError("BUSY"),
      strikes: () => engine.clock.advance(50),
    });
    engine.elapse(LEASE_MS);
    expect(remaining(engine)).toBeLessThan(0);
    engine.elapse(2 * LEASE_MS);
    expect(remaining(engine)).toBeGreaterThan(LEASE_MS / 2);
    expect(engine.news.map(({ news }) => news)).not.toContain("lost");
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test.each([
    ["delivered it to somebody else", "UPDATE messages SET receipt = 'of another process', attempts = 2"],
    ["made it ready again", "UPDATE messages SET status = 0, receipt = NULL, lease_until = NULL"],
    ["moved it to the dead letters", "UPDATE messages SET status = 3, receipt = NULL, lease_until = NULL"],
    ["removed it", "DELETE FROM messages"],
  ])("is never revived after another process %s", (_, sql) => {
    const { engine, delivery } = openWithHandler();
    engine.foreign(sql);
    const before = engine.rows();
    engine.elapse(LEASE_MS);
    expect(engine.news).toEqual([{ consumer: expect.any(Number), receipt: delivery.receipt, news: "lost" }]);
    expect(engine.rows()).toEqual(before);
  });

  test("is renewed before anything else is done, however much there is to do", () => {
    const { engine, driver } = openWithHandler();
    engine.clock.advance(LEASE_MS / 2);
    engine.put("another");
    driver.log.length = 0;
    engine.run();
    expect(driver.log.indexOf(SQL.renew)).toBe(driver.log.indexOf("BEGIN IMMEDIATE") + 1);
    expect(driver.log.indexOf(SQL.put)).toBeGreaterThan(driver.log.indexOf(SQL.renew));
  });

  test("whose renewal fails is tried again before it ends", () => {
    const { engine, driver } = openWithHandler();
    const fault = driver.plant({ at: SQL.renew, times: 3, error: sqliteError("FULL"), really: "rolls back" });
    engine.elapse(LEASE_MS);
    expect(fault.struck).toBe(3);
    expect(remaining(engine)).toBeGreaterThan(0);
    expect(engine.news.map(({ news }) => news)).not.toContain("lost");
  });

  test("is not renewed after the consumer was dismissed", () => {
    const { engine, consumer } = openWithHandler();
    consumer.dismiss();
    engine.elapse(LEASE_MS);
    expect(engine.news).toEqual([]);
    expect(remaining(engine)).toBeLessThanOrEqual(0);
  });

  test("is not renewed if the consumer was dismissed while its claim was still waiting", () => {
    const { engine } = open();
    const consumer = engine.consume({ leaseMs: LEASE_MS });
    const claim = consumer.claim(0, { waitMs: 60_000 });
    engine.run();
    consumer.dismiss();
    engine.put("job");
    engine.elapse(3 * LEASE_MS);
    if (claim.claimed?.length === 1) expect(remaining(engine)).toBeLessThanOrEqual(0);
    else expect(engine.rows()[0]).toMatchObject({ status: 0, attempts: 0 });
  });

  test("goes on being renewed by the next engine, if the first one died", () => {
    const directory = tempDirectory();
    const first = new TestEngine({ directory });
    first.put("job");
    const consumer = first.consume({ leaseMs: LEASE_MS });
    const { id, receipt } = consumer.work();
    first.close();

    const second = new TestEngine({ directory, clock: first.clock });
    second.clock.advance(LEASE_MS - 3000);
    second.consume({ leaseMs: LEASE_MS, cells: consumer.cells.buffer as SharedArrayBuffer }, [
      { id, receipt, slot: 0 },
    ]);
    second.elapse(5 * LEASE_MS);
    expect(remaining(second)).toBeGreaterThan(LEASE_MS / 2);
    expect(second.news.every(({ news }) => news === "renewed")).toBe(true);
    const ack = second.ack({ id, receipt });
    second.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });
});

test("a slot can be used again after its delivery was settled", () => {
  const { engine, consumer, delivery } = openWithHandler();
  engine.put("second");
  engine.ack(delivery);
  engine.run();
  expect(engine.textOf(consumer.work())).toBe("second");
});

test("a claim by hand is not renewed: when its lease is over, the next claim takes the job", () => {
  const { engine } = open();
  engine.put("job");
  const claim = engine.claim({ leaseMs: LEASE_MS });
  const next = engine.claim({ waitMs: 60_000 });
  engine.elapse(LEASE_MS - 100);
  expect(next.answered).toBe(false);
  engine.elapse(200);
  expect(next.delivery).toMatchObject({ id: claim.delivery.id, attempt: 2 });
  expect(engine.news).toEqual([]);
});

describe("a COMMIT that takes more than half of a new lease", () => {
  test("delays the delivery until the lease is renewed", () => {
    const { engine, driver } = open();
    engine.put("job");
    engine.run();
    driver.plant({ at: "COMMIT", strikes: () => engine.clock.advance(0.6 * LEASE_MS) });
    const claim = engine.claim({ leaseMs: LEASE_MS });
    engine.step();
    expect(claim.answered).toBe(false);
    engine.run();
    expect(claim.delivery.leaseUntil - engine.clock.wall).toBeGreaterThan(0.9 * LEASE_MS);
    expect(claim.delivery.leaseUntil).toBe(engine.rows()[0]?.["lease_until"]);
    expect(engine.textOf(claim.delivery)).toBe("job");
    expect(claim.delivery.attempt).toBe(1);
  });

  test("also for a consumer, whose lease is renewed from then on", () => {
    const { engine, driver } = open();
    engine.put("job");
    engine.run();
    const during = (): void => {
      engine.clock.advance(3 * LEASE_MS);
      engine.tick();
    };
    driver.plant({ at: "COMMIT", strikes: during });
    const consumer = engine.consume({ leaseMs: LEASE_MS });
    const delivery = consumer.work();
    expect(delivery.leaseUntil - engine.clock.wall).toBeGreaterThan(0.9 * LEASE_MS);
    engine.elapse(5 * LEASE_MS);
    expect(remaining(engine)).toBeGreaterThan(0);
  });

  test("does not deliver what somebody else took meanwhile", () => {
    const { engine, driver } = open();
    engine.put("job");
    engine.run();
    driver.plant({ at: "COMMIT", strikes: () => engine.clock.advance(3 * LEASE_MS) });
    const claim = engine.claim({ leaseMs: LEASE_MS });
    engine.step();
    engine.foreign("UPDATE messages SET receipt = 'of another process'");
    engine.run();
    expect(claim.claimed).toEqual([]);
    expect(engine.rows()[0]).toMatchObject({ receipt: "of another process" });
  });

  test("does not disturb one that took less", () => {
    const { engine, driver } = open();
    engine.put("job");
    engine.run();
    driver.plant({ at: "COMMIT", strikes: () => engine.clock.advance(0.4 * LEASE_MS) });
    const claim = engine.claim({ leaseMs: LEASE_MS });
    engine.step();
    expect(claim.claimed).toHaveLength(1);
    expect(driver.count(SQL.renew)).toBe(0);
  });
});

describe("an error while the engine reads", () => {
  test.each([
    ["the queue", SQL.look],
    ["what others have committed", SQL.dataVersion],
  ])("(%s) does not keep it from renewing a lease", (_, at) => {
    const { engine, driver, consumer, delivery } = openWithHandler();
    const waiting = consumer.claim(1, { waitMs: Number.POSITIVE_INFINITY });
    const fault = driver.plant({ at, error: sqliteError("IOERR_READ") });
    const end = engine.clock.monotonic + 2 * LEASE_MS;
    for (let steps = 0; engine.clock.monotonic < end; steps++) {
      engine.tick();
      const wait = engine.step();
      expect(wait).toBeLessThan(LEASE_MS);
      expect(steps).toBeLessThan(1000);
      engine.clock.advance(Math.max(1, Math.ceil(wait)));
    }
    expect(fault.struck).toBe(1);
    expect(waiting.error).toMatchObject({ code: "IO" });
    expect(remaining(engine)).toBeGreaterThan(LEASE_MS / 2);
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("does not let a short lease end", () => {
    const leaseMs = 400;
    const { engine, driver, consumer } = openWithHandler({ leaseMs, heartbeatMs: leaseMs / 3 });
    consumer.claim(1, { waitMs: Number.POSITIVE_INFINITY });
    driver.plant({ at: SQL.look, error: sqliteError("IOERR_READ") });
    const wait = engine.step();
    expect(wait).toBeLessThan(remaining(engine));
  });
});
