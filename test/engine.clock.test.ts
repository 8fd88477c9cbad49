import path from "node:path";
import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import { TestClock, TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver } from "./support/faulty-driver.ts";
import { PYTHON_INDEX } from "./support/python-files.ts";
import { tempDirectory } from "./support/temp.ts";

const SECOND = 1000;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const LEASE_MS = 10_000;
const FOREVER = { waitMs: Number.POSITIVE_INFINITY };

function open(directory: string = tempDirectory()): { engine: TestEngine; driver: FaultyDriver } {
  const driver = new FaultyDriver();
  return { driver, engine: new TestEngine({ directory, driver }) };
}

describe("the time of a transaction", () => {
  test("is read once the lock is held: a lease has its full length however long that took", () => {
    const { engine, driver } = open();
    engine.put("job");
    engine.run();
    driver.plant({ at: "BEGIN IMMEDIATE", strikes: () => engine.clock.advance(0.9 * LEASE_MS) });
    const claim = engine.claim({ leaseMs: LEASE_MS });
    engine.step();
    expect(claim.delivery.leaseUntil).toBe(engine.clock.wall + LEASE_MS);
    expect(engine.rows()[0]).toMatchObject({ lease_until: engine.clock.wall + LEASE_MS });
  });

  test("is what a delay and an extension count from", () => {
    const { engine, driver } = open();
    engine.put("leased");
    const claim = engine.claim({ leaseMs: LEASE_MS });
    engine.run();
    driver.plant({ at: "BEGIN IMMEDIATE", strikes: () => engine.clock.advance(5 * SECOND) });
    engine.put("delayed", { delayMs: 30 * SECOND });
    const extend = engine.extend(claim.delivery, LEASE_MS);
    engine.step();
    const { wall } = engine.clock;
    expect(extend.answer).toMatchObject({ extended: wall + LEASE_MS });
    expect(engine.rows()).toMatchObject([
      { lease_until: wall + LEASE_MS, updated_at: wall },
      { available_at: wall + 30 * SECOND, created_at: wall, updated_at: wall },
    ]);
  });

  test("decides whether a lease is over: one that ended while its holder waited for the lock is lost", () => {
    const { engine, driver } = open();
    engine.put("job");
    const claim = engine.claim({ leaseMs: LEASE_MS });
    engine.run();
    driver.plant({ at: "BEGIN IMMEDIATE", strikes: () => engine.clock.advance(LEASE_MS) });
    const ack = engine.ack(claim.delivery);
    engine.step();
    expect(ack.answer).toMatchObject({ refused: "lost" });
  });

  test("is stored in whole milliseconds", () => {
    const { engine } = open();
    engine.clock.wall += 0.25;
    engine.put("job", { delayMs: 10 });
    const claim = engine.claim({ ...FOREVER, leaseMs: LEASE_MS });
    engine.elapse(20);
    engine.extend(claim.delivery, 5000);
    engine.run();
    const [types] = engine.rows(
      "SELECT typeof(available_at) || typeof(lease_until) || typeof(created_at) || typeof(updated_at) AS all_of FROM messages",
    );
    expect(types).toEqual({ all_of: "integer".repeat(4) });
  });
});

describe.each([
  ["an hour", HOUR],
  ["a day", DAY],
])("a clock that is set forward by %s", (_, jump) => {
  test("takes no lease from a worker", () => {
    const { engine } = open();
    engine.put("job");
    const consumer = engine.consume({ leaseMs: LEASE_MS });
    const delivery = consumer.work();
    const other = engine.claim(FOREVER);
    engine.run();
    engine.clock.wall += jump;
    engine.elapse(3 * LEASE_MS);
    expect(other.answered).toBe(false);
    expect(engine.rows()[0]?.["lease_until"]).toBeGreaterThan(engine.clock.wall);
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("lets a worker settle at once", () => {
    const { engine } = open();
    engine.put("job");
    const delivery = engine.consume({ leaseMs: LEASE_MS }).work();
    engine.clock.wall += jump;
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("delivers a job that was claimed by hand once more, and only once", () => {
    const { engine } = open();
    engine.put("job");
    const first = engine.claim({ leaseMs: HOUR / 2 });
    const second = engine.claim({ ...FOREVER, leaseMs: HOUR });
    const third = engine.claim(FOREVER);
    engine.run();
    engine.clock.wall += jump;
    engine.elapse(5 * SECOND);
    expect(second.delivery).toMatchObject({ id: 1, attempt: 2 });
    const ack = engine.ack(first.delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ refused: "lost" });
    engine.elapse(HOUR / 4);
    expect(third.answered).toBe(false);
  });

  test("delivers delayed jobs early, and loses none", () => {
    const { engine } = open();
    for (const payload of ["a", "b", "c"]) engine.put(payload, { delayMs: HOUR / 2 });
    const claim = engine.claim({ ...FOREVER, limit: 3 });
    engine.run();
    engine.clock.wall += jump;
    engine.elapse(5 * SECOND);
    expect(claim.claimed?.map((delivery) => engine.textOf(delivery))).toEqual(["a", "b", "c"]);
  });
});

describe.each([
  ["an hour", HOUR],
  ["a day", DAY],
])("a clock that is set back by %s", (_, jump) => {
  test("delivers a delayed job after its delay at the latest", () => {
    const { engine } = open();
    engine.put("job", { delayMs: 30 * SECOND });
    const claim = engine.claim(FOREVER);
    engine.elapse(10 * SECOND);
    engine.clock.wall -= jump;
    engine.elapse(15 * SECOND);
    expect(claim.answered).toBe(false);
    engine.elapse(17 * SECOND);
    expect(engine.textOf(claim.delivery)).toBe("job");
  });

  test("takes a job from a dead holder after its lease at the latest", () => {
    const { engine } = open();
    engine.put("job");
    engine.claim({ leaseMs: LEASE_MS });
    const claim = engine.claim(FOREVER);
    engine.elapse(LEASE_MS / 2);
    engine.clock.wall -= jump;
    engine.elapse(LEASE_MS + 2 * SECOND);
    expect(claim.delivery).toMatchObject({ attempt: 2 });
  });

  test("takes nothing from a holder who lives", () => {
    const { engine } = open();
    engine.put("by hand");
    engine.put("by a worker");
    const byHand = engine.claim({ leaseMs: LEASE_MS });
    engine.run();
    const byWorker = engine.consume({ leaseMs: LEASE_MS }).work();
    engine.clock.wall -= jump;
    engine.elapse(LEASE_MS - 2 * SECOND);
    const acks = [engine.ack(byHand.delivery), engine.ack(byWorker)];
    engine.run();
    expect(acks.map(({ answer }) => answer)).toMatchObject([{ settled: "acked" }, { settled: "acked" }]);
  });

  test("leaves ready jobs ready, in their order", () => {
    const { engine } = open();
    for (const payload of ["a", "b"]) engine.put(payload);
    engine.run();
    engine.clock.wall -= jump;
    engine.put("c");
    const claim = engine.claim({ limit: 10 });
    engine.run();
    expect(claim.claimed?.map((delivery) => engine.textOf(delivery))).toEqual(["a", "b", "c"]);
  });

  test("is noticed at open, too, in all queues", () => {
    const directory = tempDirectory();
    const ahead = new TestClock();
    ahead.wall += jump;
    const before = new TestEngine({ directory, clock: ahead });
    before.put("delayed", { delayMs: 30 * SECOND });
    before.put("delayed", { delayMs: 30 * SECOND, queue: "another" });
    before.put("leased");
    before.claim({ leaseMs: LEASE_MS });
    before.run();
    before.close();

    const clock = new TestClock();
    const engine = new TestEngine({ directory, clock, idle: true });
    const claims = [engine.claim(FOREVER), engine.claim({ ...FOREVER, queue: "another" }), engine.claim(FOREVER)];
    engine.elapse(8 * SECOND);
    expect(claims.some(({ answered }) => answered)).toBe(false);
    expect(engine.rows().every(({ updated_at }) => Number(updated_at) <= clock.wall)).toBe(true);
    engine.elapse(24 * SECOND);
    expect(claims.map(({ claimed }) => claimed?.length)).toEqual([1, 1, 1]);
  });
});

describe("a lease that was renewed until its holder died, before the clock was set back,", () => {
  /** A worker that has held a job for two hours, and dies. */
  function holdAndDie(directory: string, clock: TestClock): void {
    const dying = new TestEngine({ directory, clock });
    dying.put("job");
    dying.consume({ leaseMs: LEASE_MS }).work();
    dying.elapse(2 * HOUR);
    dying.close();
    clock.wall -= HOUR;
  }

  test("ends in time for a process that starts then", () => {
    const directory = tempDirectory();
    const clock = new TestClock();
    holdAndDie(directory, clock);
    const engine = new TestEngine({ directory, clock });
    const claim = engine.claim(FOREVER);
    engine.elapse(LEASE_MS + SECOND);
    expect(claim.delivery).toMatchObject({ id: 1, attempt: 2 });
  });

  test("ends in time for a process that had nothing to do all the while", () => {
    const directory = tempDirectory();
    const clock = new TestClock();
    const engine = new TestEngine({ directory, clock });
    holdAndDie(directory, clock);
    const claim = engine.claim(FOREVER);
    engine.elapse(LEASE_MS + SECOND);
    expect(claim.delivery).toMatchObject({ id: 1, attempt: 2 });
  });
});

test("a delay that another process began, before the clock was set back, ends in time for one that was idle", () => {
  const directory = tempDirectory();
  const clock = new TestClock();
  const engine = new TestEngine({ directory, clock });
  const other = new TestEngine({ directory, clock });
  clock.advance(HOUR);
  other.put("delayed", { delayMs: 30 * SECOND });
  other.step();
  other.close();
  clock.wall -= HOUR / 2;
  const claim = engine.claim(FOREVER);
  engine.elapse(32 * SECOND);
  expect(claim.claimed).toHaveLength(1);
});

describe("the repair after a clock went back", () => {
  test("shifts leases and delays, and keeps their length", () => {
    const { engine } = open();
    engine.put("delayed", { delayMs: 30 * SECOND });
    engine.put("leased");
    engine.claim({ leaseMs: LEASE_MS });
    engine.step();
    engine.clock.wall -= HOUR;
    engine.run();
    const [delayed, leased] = engine.rows();
    expect(Number(delayed?.["updated_at"])).toBeLessThanOrEqual(engine.clock.wall);
    expect(Number(delayed?.["available_at"]) - Number(delayed?.["updated_at"])).toBe(30 * SECOND);
    expect(Number(leased?.["lease_until"]) - Number(leased?.["updated_at"])).toBe(LEASE_MS);
  });

  test("is harmless to repeat, and does not go on", () => {
    const { engine, driver } = open();
    engine.put("delayed", { delayMs: 30 * SECOND });
    engine.claim({ leaseMs: LEASE_MS });
    engine.run();
    engine.clock.wall -= HOUR;
    engine.run();
    const repaired = engine.rows();
    driver.log.length = 0;
    engine.elapse(5 * SECOND);
    expect(driver.log).toEqual([]);

    const other = new TestEngine({ directory: path.dirname(engine.connection.file), clock: engine.clock, idle: true });
    other.claim();
    other.run();
    expect(engine.rows()).toEqual(repaired);
  });

  test("does nothing when the clock went back by a moment only", () => {
    const { engine, driver } = open();
    engine.put("delayed", { delayMs: 30 * SECOND });
    engine.run();
    const before = engine.rows();
    driver.log.length = 0;
    engine.clock.wall -= 900;
    engine.elapse(2 * SECOND);
    expect(driver.log).toEqual([]);
    expect(engine.rows()).toEqual(before);
  });

  test("goes in slices, between which others are served", () => {
    const { engine, driver } = open();
    for (const queue of ["default", "another"]) {
      for (let i = 0; i < 10; i++) engine.putMany(Array(100).fill("delayed"), { queue, delayMs: 30 * SECOND + i });
    }
    for (let i = 0; i < 3; i++) engine.putMany(Array(100).fill("leased"));
    engine.claim({ limit: 250, leaseMs: LEASE_MS });
    engine.run();
    driver.log.length = 0;
    engine.clock.wall -= DAY;
    engine.step();
    const put = engine.put("meanwhile");
    engine.step();
    expect(put.answered).toBe(true);
    engine.run();

    const { wall } = engine.clock;
    const ahead = (condition: string): unknown =>
      engine.rows(`SELECT count(*) AS jobs FROM messages WHERE ${condition}`)[0]?.["jobs"];
    expect(ahead(`status = 1 AND lease_until > ${wall + LEASE_MS}`)).toBe(0);
    expect(ahead(`status = 0 AND available_at > updated_at AND available_at > ${wall + 31 * SECOND}`)).toBe(0);
    const shifted = driver.log.filter((sql) => sql === SQL.pullBackDelay || sql === SQL.pullBackLease);
    expect(shifted).toHaveLength(2000 + 250);
    let inThisTransaction = 0;
    for (const sql of driver.log) {
      if (sql === "BEGIN IMMEDIATE") inThisTransaction = 0;
      if (sql === SQL.pullBackDelay || sql === SQL.pullBackLease) inThisTransaction++;
      expect(inThisTransaction).toBeLessThanOrEqual(200);
    }
  });

  test("is taken up again after a failure", () => {
    const { engine, driver } = open();
    engine.put("job", { delayMs: 30 * SECOND });
    const claim = engine.claim(FOREVER);
    engine.run();
    driver.plant({ at: SQL.pullBackDelay, error: new Error("injected") });
    engine.clock.wall -= HOUR;
    engine.elapse(35 * SECOND);
    expect(claim.claimed).toHaveLength(1);
  });

  test.each(["counts by transactions", "counts by triggers"])(
    "is taken up again by others if its process is killed: %s",
    (by) => {
      const { engine } = open();
      if (by === "counts by triggers") engine.foreign(PYTHON_INDEX);
      for (let i = 0; i < 2; i++) engine.putMany(Array(75).fill("delayed"), { delayMs: 30 * SECOND });
      engine.run();
      engine.close();
      const { clock, connection } = engine;
      const directory = path.dirname(connection.file);
      clock.wall -= HOUR;
      const killed = new TestEngine({ directory, clock, idle: true, closedByCaller: true });
      // The first slice goes with it, the last one has not been.
      const put = killed.put("meanwhile");
      killed.step();
      expect(put.answered).toBe(true);
      expect(killed.rows(`SELECT 1 FROM messages WHERE updated_at > ${clock.wall + SECOND}`)).toHaveLength(50);
      killed.close();

      const next = new TestEngine({ directory, clock });
      next.elapse(31 * SECOND);
      for (let delivered = 0; delivered < 151; ) {
        const claim = next.claim({ limit: 200 });
        next.run();
        expect(claim.claimed?.length).toBeGreaterThan(0);
        delivered += claim.claimed?.length ?? 0;
      }
    },
  );

  test.each([
    ["while the engine runs", false],
    ["while nothing runs", true],
  ])("is complete: nothing is late by more than a second if it is set back a little more, %s", (_, reopened) => {
    const directory = tempDirectory();
    const first = new TestEngine({ directory, closedByCaller: reopened });
    const { clock } = first;
    first.put("delayed", { delayMs: 30 * SECOND });
    first.run();
    clock.wall += 600;
    first.put("ready", { queue: "another" });
    first.run();
    // More than a second behind what was written last, not behind what is delayed.
    clock.wall -= 1500;
    first.run();
    if (reopened) first.close();
    clock.wall -= 900;

    const engine = reopened ? new TestEngine({ directory, clock, idle: true }) : first;
    const claim = engine.claim(FOREVER);
    engine.elapse(31 * SECOND);
    expect(engine.textOf(claim.delivery)).toBe("delayed");
  });

  test("is made when it is set back a little more after it was set back while nothing ran", () => {
    const directory = tempDirectory();
    const first = new TestEngine({ directory, closedByCaller: true });
    const { clock } = first;
    first.put("delayed", { delayMs: 30 * SECOND });
    first.run();
    first.close();
    clock.wall -= 800;
    const engine = new TestEngine({ directory, clock, idle: true });
    engine.run();
    clock.wall -= 400;
    const claim = engine.claim(FOREVER);
    engine.elapse(31 * SECOND);
    expect(engine.textOf(claim.delivery)).toBe("delayed");
  });

  test("includes a queue that is new, and that somebody else wrote just before it", () => {
    const { engine, driver } = open();
    engine.put("known");
    engine.run();
    const before = engine.clock.wall;
    engine.clock.wall -= HOUR;
    // Its transaction had begun before the clock was set.
    const strikes = (): void =>
      engine.foreign(`
        INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at)
          VALUES ('new', x'41', 0, 0, 3, ${before + 30 * SECOND}, ${before}, ${before});
        INSERT INTO localqueue_counts (queue, ready, clock) VALUES ('new', 1, ${before})`);
    driver.plant({ at: "BEGIN IMMEDIATE", strikes });
    engine.put("goes with the repair");
    engine.run();
    const claim = engine.claim({ ...FOREVER, queue: "new" });
    engine.elapse(31 * SECOND);
    expect(engine.textOf(claim.delivery)).toBe("A");
  });

  test("is made although somebody else has written since this process looked at the clock", () => {
    const directory = tempDirectory();
    const engine = new TestEngine({ directory });
    const { clock } = engine;
    const other = new TestEngine({ directory, clock });
    engine.step();
    clock.advance(900);
    other.put("delayed", { delayMs: 30 * SECOND });
    other.run();
    // Behind what was written by more than a second, not behind what was seen.
    clock.wall -= 1850;
    engine.tick();
    const claim = engine.claim(FOREVER);
    engine.elapse(30 * SECOND + 100);
    expect(engine.textOf(claim.delivery)).toBe("delayed");
  });

  test("survives a clock that goes to and fro", () => {
    const { engine } = open();
    engine.put("delayed", { delayMs: 30 * SECOND });
    engine.put("worked on");
    const delivery = engine.consume({ leaseMs: LEASE_MS }).work();
    const claim = engine.claim(FOREVER);
    for (const jump of [-HOUR, HOUR, -DAY, 5000, -5000, -HOUR]) {
      engine.clock.wall += jump;
      engine.elapse(3 * SECOND);
    }
    engine.elapse(40 * SECOND);
    expect(engine.textOf(claim.delivery)).toBe("delayed");
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
    expect(engine.rows().map(({ attempts }) => attempts)).toEqual([1, 1]);
  });
});
