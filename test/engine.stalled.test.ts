import path from "node:path";
import { describe, expect, test } from "vitest";
import { type Call, type TestConsumer, TestEngine } from "./support/engine-harness.ts";
import { tempDirectory } from "./support/temp.ts";

const LEASE_MS = 10_000;
const MINUTE = 60_000;
const silently = { ticking: false };

function open(): TestEngine {
  return new TestEngine({ directory: tempDirectory() });
}

/** Another process puts a job. */
function putElsewhere(engine: TestEngine): void {
  engine.foreign(
    `INSERT INTO messages (queue, payload, status, max_attempts, available_at, created_at, updated_at)
      VALUES ('default', 'job', 0, 4, ${engine.clock.wall}, ${engine.clock.wall}, ${engine.clock.wall})`,
  );
}

/** A delivery that the client has received, without having started its handler. */
function deliver(engine: TestEngine, consumer: TestConsumer, slot = 0): Call {
  engine.put("job");
  const claim = consumer.claim(slot);
  engine.run();
  expect(claim.claimed).toHaveLength(1);
  return claim;
}

function remaining(engine: TestEngine): number {
  return Number(engine.rows()[0]?.["lease_until"]) - engine.clock.wall;
}

function newsBesideRenewals(engine: TestEngine): string[] {
  return engine.news.map(({ news }) => news).filter((news) => news !== "renewed");
}

describe("while the client's thread is blocked", () => {
  test("it is given no work; what it waits for comes as soon as it is back", () => {
    const engine = open();
    const consumer = engine.consume();
    const claims = [consumer.claim(0, { waitMs: 10 * MINUTE }), engine.claim({ waitMs: 10 * MINUTE })];
    engine.elapse(1100, silently);
    putElsewhere(engine);
    putElsewhere(engine);
    engine.elapse(5 * MINUTE, silently);
    expect(claims.some(({ answered }) => answered)).toBe(false);
    expect(engine.rows()).toMatchObject([
      { status: 0, attempts: 0 },
      { status: 0, attempts: 0 },
    ]);
    engine.elapse(0);
    expect(claims.map(({ claimed }) => claimed?.length)).toEqual([1, 1]);
  });

  test("no wait ends: there is a look first when it is back", () => {
    const engine = open();
    const [first, second] = [engine.claim({ waitMs: 2000 }), engine.claim({ waitMs: 2000 })];
    engine.elapse(1100, silently);
    putElsewhere(engine);
    engine.elapse(5 * MINUTE, silently);
    expect([first.answered, second.answered]).toEqual([false, false]);
    engine.elapse(0);
    expect([first.claimed?.length, second.claimed]).toEqual([1, []]);
  });

  test("the engine rests, even if a job comes due", () => {
    const engine = open();
    engine.put("job", { delayMs: 3000 });
    const claim = engine.claim({ waitMs: 10 * MINUTE });
    engine.elapse(2 * MINUTE, silently);
    expect(claim.answered).toBe(false);
    expect(engine.step()).toBeGreaterThan(10);
    engine.elapse(0);
    expect(claim.claimed).toHaveLength(1);
  });

  test("a pause of less than a second changes nothing", () => {
    const engine = open();
    const consumer = engine.consume();
    const claim = deliver(engine, consumer);
    engine.elapse(900, silently);
    expect(consumer.start()).toBe(true);
    expect(engine.rows()[0]).toMatchObject({ receipt: claim.delivery.receipt });
  });

  test("a delivery whose handler it never started is given back, uncounted", () => {
    const engine = open();
    const consumer = engine.consume();
    const claim = deliver(engine, consumer);
    engine.elapse(1500, silently);
    expect(engine.rows()[0]).toMatchObject({ status: 0, attempts: 0, releases: 1, receipt: null });
    expect(consumer.start()).toBe(false);

    const ack = engine.ack(claim.delivery);
    const again = consumer.claim();
    engine.run();
    expect(ack.answer).toMatchObject({ refused: "lost" });
    expect(again.delivery).toMatchObject({ id: claim.delivery.id, attempt: 1 });
    expect(again.delivery.receipt).not.toBe(claim.delivery.receipt);
    expect(consumer.start()).toBe(true);
  });

  test("each slot is judged for itself", () => {
    const engine = open();
    const consumer = engine.consume({ slots: 3 });
    for (const slot of [0, 1, 2]) deliver(engine, consumer, slot);
    consumer.start(1);
    engine.elapse(1500, silently);
    expect([0, 1, 2].map((slot) => consumer.start(slot))).toEqual([false, false, false]);
    expect(engine.rows().map(({ status, attempts }) => [status, attempts])).toEqual([
      [0, 0],
      [1, 1],
      [0, 0],
    ]);
  });

  test("a delivery that another consumer could take is taken by it", () => {
    const directory = tempDirectory();
    const engine = new TestEngine({ directory });
    const other = new TestEngine({ directory, clock: engine.clock });
    const claim = deliver(engine, engine.consume());
    engine.elapse(1500, silently);
    const next = other.claim();
    other.run();
    expect(next.delivery).toMatchObject({ id: claim.delivery.id, attempt: 1 });
  });

  test("a handler that runs keeps its lease", () => {
    const engine = open();
    const consumer = engine.consume({ leaseMs: LEASE_MS });
    const { delivery } = deliver(engine, consumer);
    consumer.start();
    for (let minute = 0; minute < 14; minute++) {
      engine.elapse(MINUTE, silently);
      expect(remaining(engine)).toBeGreaterThan(0);
    }
    engine.elapse(0);
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("what was claimed by hand is left alone", () => {
    const engine = open();
    engine.put("job");
    const claim = engine.claim({ leaseMs: LEASE_MS });
    engine.run();
    engine.elapse(LEASE_MS - 1000, silently);
    const ack = engine.ack(claim.delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("after a quarter of an hour its leases are left to expire, and the engine rests", () => {
    const engine = open();
    const consumer = engine.consume({ leaseMs: LEASE_MS });
    const { delivery } = deliver(engine, consumer);
    consumer.start();
    engine.elapse(15 * MINUTE + 2 * LEASE_MS, silently);
    expect(remaining(engine)).toBeLessThanOrEqual(0);
    expect(engine.step()).toBeGreaterThan(10);

    const other = new TestEngine({ directory: engine.connection.file.replace(/\/[^/]*$/, ""), clock: engine.clock });
    const takeover = other.claim();
    other.run();
    expect(takeover.delivery).toMatchObject({ id: delivery.id, attempt: 2 });
    engine.elapse(LEASE_MS);
    expect(engine.news.at(-1)).toMatchObject({ receipt: delivery.receipt, news: "lost" });
  });

  test("a client that returns after a quarter of an hour gets its unclaimed leases back", () => {
    const engine = open();
    const consumer = engine.consume({ leaseMs: LEASE_MS });
    const { delivery } = deliver(engine, consumer);
    consumer.start();
    engine.elapse(16 * MINUTE, silently);
    engine.elapse(LEASE_MS);
    expect(remaining(engine)).toBeGreaterThan(0);
    const ack = engine.ack(delivery);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });
});

describe("a handler's time-out", () => {
  const settings = { leaseMs: LEASE_MS, timeoutMs: 30_000, graceMs: 5000 };

  function run(ticking: boolean, maxAttempts: number): { engine: TestEngine; consumer: TestConsumer } {
    const engine = open();
    engine.put("job", { maxAttempts });
    const consumer = engine.consume(settings);
    const claim = consumer.claim();
    engine.run();
    engine.elapse(800, { ticking: false });
    consumer.start();
    engine.elapse(29_900, { ticking });
    expect(claim.claimed).toHaveLength(1);
    expect(newsBesideRenewals(engine)).toEqual([]);
    return { engine, consumer };
  }

  test.each([
    ["awake", true],
    ["blocked by it", false],
  ])("is told once it has run so long since its start, with the client's thread %s", (_, ticking) => {
    const { engine } = run(ticking, 1);
    engine.elapse(200, { ticking });
    expect(newsBesideRenewals(engine)).toEqual(["timedOut"]);
  });

  test("is followed by a grace, in which the lease is still renewed", () => {
    const { engine } = run(true, 1);
    engine.elapse(5000);
    expect(remaining(engine)).toBeGreaterThan(LEASE_MS / 2);
    engine.elapse(200);
    expect(newsBesideRenewals(engine)).toEqual(["timedOut", "overdue"]);
  });

  test.each([true, false])("ends the renewing after the grace (client ticking: %s)", (ticking) => {
    const { engine } = run(ticking, 4);
    engine.elapse(5200, { ticking });
    const { length } = engine.news;
    engine.elapse(LEASE_MS + 200, { ticking });
    expect(remaining(engine)).toBeLessThan(0);
    expect(engine.news.length).toBe(length);
  });

  test("is the reason of a dead letter, if it was the last delivery", () => {
    const { engine } = run(true, 1);
    engine.elapse(5200 + LEASE_MS);
    const reclaim = engine.reclaim();
    engine.run();
    expect(reclaim.answer).toMatchObject({ reclaimed: 1 });
    expect(engine.rows()[0]).toMatchObject({ status: 3, failure_reason: "handler_timeout" });
  });

  test("is forgotten when there are deliveries left", () => {
    const { engine, consumer } = run(true, 2);
    engine.elapse(5200 + LEASE_MS);
    consumer.work(1);
    expect(engine.rows()[0]).toMatchObject({ status: 1, attempts: 2, failure_reason: null });
  });

  test("does not run before the handler was started", () => {
    const engine = open();
    const consumer = engine.consume(settings);
    deliver(engine, consumer);
    engine.elapse(2 * MINUTE);
    expect(newsBesideRenewals(engine)).toEqual([]);
    expect(consumer.start()).toBe(true);
    engine.elapse(29_000);
    expect(newsBesideRenewals(engine)).toEqual([]);
    engine.elapse(1100);
    expect(newsBesideRenewals(engine)).toEqual(["timedOut"]);
  });

  test("is not granted anew when the engine is started again", () => {
    const { engine: first, consumer } = run(true, 1);
    const [{ id = 0, receipt = "" } = {}] = first.rows() as { id?: number; receipt?: string }[];
    first.close();
    const second = new TestEngine({ directory: path.dirname(first.connection.file), clock: first.clock, idle: true });
    second.consume({ ...settings, cells: consumer.cells.buffer as SharedArrayBuffer }, [{ id, receipt, slot: 0 }]);
    second.elapse(200);
    expect(newsBesideRenewals(second)).toEqual(["timedOut"]);
    second.elapse(5100);
    expect(newsBesideRenewals(second)).toEqual(["timedOut", "overdue"]);
  });

  test("starts anew with the next delivery in the same slot", () => {
    const { engine, consumer } = run(true, 4);
    const [row] = engine.rows();
    engine.ack({ id: Number(row?.["id"]), receipt: String(row?.["receipt"]) });
    engine.put("second");
    engine.run();
    consumer.work();
    engine.elapse(29_000);
    expect(newsBesideRenewals(engine)).toEqual([]);
    engine.elapse(1100);
    expect(newsBesideRenewals(engine)).toEqual(["timedOut"]);
  });
});

describe("after the machine slept", () => {
  /** A job that another process holds. */
  function leaseElsewhere(engine: TestEngine, leaseMs: number): void {
    const { wall } = engine.clock;
    engine.foreign(
      `INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at, receipt, lease_until)
        VALUES ('default', 'elsewhere', 1, 1, 4, ${wall}, ${wall}, ${wall}, 'elsewhere', ${wall + leaseMs})`,
    );
  }

  test("its own leases are renewed before anybody's are ended", () => {
    const engine = open();
    engine.put("mine");
    const consumer = engine.consume({ leaseMs: LEASE_MS });
    const mine = consumer.work();
    leaseElsewhere(engine, LEASE_MS);
    const waiting = engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.run();

    engine.clock.advance(60 * MINUTE);
    engine.tick();
    engine.run();
    expect(remaining(engine)).toBeGreaterThan(LEASE_MS / 2);
    engine.elapse(1800);
    expect(waiting.answered).toBe(false);
    expect(engine.rows()[1]).toMatchObject({ receipt: "elsewhere", attempts: 1 });

    engine.elapse(400);
    expect(waiting.delivery).toMatchObject({ id: 2, attempt: 2 });
    const ack = engine.ack(mine);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("a lease that its holder renews in time stays with it", () => {
    const engine = open();
    leaseElsewhere(engine, LEASE_MS);
    const waiting = engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.run();
    engine.clock.advance(60 * MINUTE);
    engine.elapse(1000);
    engine.foreign(`UPDATE messages SET lease_until = ${engine.clock.wall + LEASE_MS}`);
    engine.elapse(LEASE_MS - 500);
    expect(waiting.answered).toBe(false);
    engine.elapse(1000);
    expect(waiting.delivery).toMatchObject({ attempt: 2 });
  });

  test("ready jobs are delivered at once", () => {
    const engine = open();
    const waiting = engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.run();
    engine.clock.advance(60 * MINUTE);
    putElsewhere(engine);
    engine.elapse(10);
    expect(waiting.claimed).toHaveLength(1);
  });

  test("a wait that ends a little late is no sleep", () => {
    const engine = open();
    leaseElsewhere(engine, LEASE_MS);
    const waiting = engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.run();
    engine.elapse(LEASE_MS - 500);
    engine.clock.advance(500 + 1500);
    engine.tick();
    engine.run();
    expect(waiting.delivery).toMatchObject({ attempt: 2 });
  });
});
