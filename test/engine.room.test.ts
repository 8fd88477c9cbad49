import { describe, expect, test } from "vitest";
import { SIGNAL, WATCH } from "../dist/storage/sqlite/protocol.js";
import { SQL } from "../dist/storage/sqlite/statements.js";
import { type Call, putCommand, TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver, sqliteError } from "./support/faulty-driver.ts";
import { openBare, PYTHON_INDEX } from "./support/python-files.ts";
import { tempDirectory } from "./support/temp.ts";

const FOREVER = Number.POSITIVE_INFINITY;

function open(): { engine: TestEngine; driver: FaultyDriver; directory: string } {
  const driver = new FaultyDriver();
  const directory = tempDirectory();
  const engine = new TestEngine({ directory, driver });
  driver.log.length = 0;
  return { engine, driver, directory };
}

/** An engine with a queue that is full: it holds one job, which is claimed. */
function openFull(): { engine: TestEngine; driver: FaultyDriver; directory: string; freeSlot: () => void } {
  const opened = open();
  const { engine } = opened;
  engine.put("first");
  engine.run();
  return { ...opened, freeSlot: () => freeSlot(engine) };
}

/** A job is taken and acknowledged. */
function freeSlot(engine: TestEngine): void {
  const claim = engine.claim();
  engine.run();
  engine.ack(claim.delivery);
  engine.run();
}

function outcome({ answer }: Call): unknown {
  if (answer === undefined) return "waits";
  return answer.put === undefined ? (answer.refused ?? answer.error?.code) : "put";
}

/** Puts of one message, one job each; `maxPending` for all. */
function putAll(engine: TestEngine, count: number, maxPending: number, waitMs = FOREVER): Call[] {
  const calls = Array.from({ length: count }, () => engine.newCall());
  engine.send(calls.map(({ id }, i) => putCommand(id, [`job ${i}`], { maxPending, waitMs })));
  return calls;
}

/** How many statements are executed, those that read included. */
function counting(driver: FaultyDriver): { readonly statements: number } {
  const count = { statements: 0 };
  driver.plant({ at: /./, times: FOREVER, strikes: () => count.statements++ });
  return count;
}

function numbersIn(engine: TestEngine): unknown[] {
  return engine.rows("SELECT ready, processing, acked, failed FROM localqueue_counts WHERE queue = 'default'");
}

describe("puts of one message", () => {
  test("are let in up to the limit, in one transaction, and the limit is read once", () => {
    const { engine, driver } = open();
    const reads = driver.plant({ at: SQL.stats, times: FOREVER, strikes: () => {} });
    const calls = putAll(engine, 50, 30, 0);
    engine.run();
    expect(calls.map(outcome)).toEqual([...Array(30).fill("put"), ...Array(20).fill("full")]);
    expect(engine.stored()).toHaveLength(30);
    expect(driver.count("COMMIT")).toBe(1);
    expect(reads.struck).toBe(1);
  });

  test("find the room that settlements before them make in the same transaction", () => {
    const { engine, driver } = open();
    engine.put("first");
    const claim = engine.claim();
    engine.run();
    driver.log.length = 0;
    const [one, two] = [engine.newCall(), engine.newCall()];
    const { id, receipt } = claim.delivery;
    const settle = {
      op: "settle",
      id: engine.newCall().id,
      origin: { session: 1, queue: "default", fsync: false, text: false },
    } as const;
    engine.send([
      putCommand(one.id, ["too early"], { maxPending: 1, waitMs: 0 }),
      { ...settle, lockMs: 0, lease: { id, receipt }, move: { event: "ack" } },
      putCommand(two.id, ["in time"], { maxPending: 1, waitMs: 0 }),
    ]);
    engine.run();
    expect([one, two].map(outcome)).toEqual(["full", "put"]);
    expect(driver.count("COMMIT")).toBe(1);
  });

  test("are counted exactly where triggers keep the counts", () => {
    const { engine } = open();
    engine.foreign(PYTHON_INDEX);
    const unlimited = engine.put("any number");
    const calls = putAll(engine, 20, 10, 0);
    engine.run();
    expect([unlimited, ...calls].map(outcome)).toEqual([...Array(10).fill("put"), ...Array(11).fill("full")]);
    const more = putAll(engine, 2, 11, 0);
    engine.run();
    expect(more.map(outcome)).toEqual(["put", "full"]);
    expect(numbersIn(engine)).toEqual([{ ready: 11, processing: 0, acked: 0, failed: 0 }]);
  });

  test("are counted exactly when one of them fails and is undone", () => {
    const { engine, driver } = open();
    driver.plant({ at: SQL.put, after: 2, error: sqliteError("CONSTRAINT") });
    const batch = engine.putMany(["a", "b", "c"], { maxPending: 4, waitMs: 0 });
    const calls = putAll(engine, 5, 4, 0);
    engine.run();
    expect(outcome(batch)).toBe("IO");
    expect(calls.map(outcome)).toEqual(["put", "put", "put", "put", "full"]);
    expect(numbersIn(engine)).toEqual([{ ready: 4, processing: 0, acked: 0, failed: 0 }]);
  });

  test("are counted exactly when the transaction is lost with one of them, and repeated", () => {
    const { engine, driver } = open();
    driver.plant({ at: SQL.put, after: 3, error: sqliteError("FULL"), really: "rolls back" });
    const calls = putAll(engine, 8, 4);
    engine.run();
    expect(calls.map(outcome)).toEqual([...["put", "put", "put", "DISK_FULL", "put"], ...["waits", "waits", "waits"]]);
    expect(engine.stored()).toEqual(["job 0", "job 1", "job 2", "job 4"]);
    freeSlot(engine);
    expect(calls.map(outcome).slice(5)).toEqual(["put", "waits", "waits"]);
  });

  test("are counted exactly when COMMIT fails and the transaction is repeated", () => {
    const { engine, driver } = open();
    driver.plant({ at: "COMMIT", error: sqliteError("IOERR_WRITE"), really: "rolls back" });
    const calls = putAll(engine, 5, 3, 0);
    engine.run();
    expect(calls.map(outcome)).toEqual(["put", "put", "put", "full", "full"]);
    expect(numbersIn(engine)).toEqual([{ ready: 3, processing: 0, acked: 0, failed: 0 }]);
  });
});

describe("a put that waits", () => {
  test("does not keep its client from sending more", () => {
    const { engine } = openFull();
    const done = engine.batchesDone;
    const calls = putAll(engine, 2000, 1);
    engine.run();
    expect(calls.every(({ answered }) => !answered)).toBe(true);
    expect(engine.batchesDone).toBe(done + 1);
    expect(engine.step()).toBeGreaterThan(100);
  });

  test("is put in the very transaction that makes room", () => {
    const { engine, driver } = openFull();
    const claim = engine.claim();
    const [one, two] = putAll(engine, 2, 1);
    engine.run();
    driver.log.length = 0;
    engine.ack(claim.delivery);
    engine.run();
    expect([one, two].map((call) => outcome(call as Call))).toEqual(["put", "waits"]);
    expect(driver.count("COMMIT")).toBe(1);
  });

  test("is delivered in that transaction, too, to a claim that waits", () => {
    const { engine, driver } = openFull();
    const claim = engine.claim();
    putAll(engine, 1, 1);
    engine.run();
    const next = engine.claim({ waitMs: 60_000 });
    engine.run();
    driver.log.length = 0;
    engine.ack(claim.delivery);
    engine.run();
    expect(engine.textOf(next.delivery)).toBe("job 0");
    expect(driver.count("COMMIT")).toBe(1);
  });

  test("gets the room that a lease which ended for good leaves", () => {
    const { engine } = open();
    engine.put("first", { maxAttempts: 1 });
    engine.claim({ leaseMs: 1000 });
    const [waiting] = putAll(engine, 1, 1);
    engine.elapse(500);
    expect(outcome(waiting as Call)).toBe("waits");
    const claim = engine.claim({ waitMs: 60_000 });
    engine.elapse(600);
    expect(outcome(waiting as Call)).toBe("put");
    expect(engine.textOf(claim.delivery)).toBe("job 0");
  });

  test("gets the room that a consumer's lower budget leaves", () => {
    const { engine } = openFull();
    const claim = engine.claim();
    engine.run();
    engine.settle(claim.delivery, { event: "nack", delayMs: 0, lastError: undefined, exhaustedReason: "rejected" });
    const [waiting] = putAll(engine, 1, 1);
    engine.run();
    expect(outcome(waiting as Call)).toBe("waits");
    const next = engine.consume({ maxAttempts: 1 }).claim(0, { waitMs: 60_000 });
    engine.run();
    expect(outcome(waiting as Call)).toBe("put");
    expect(engine.textOf(next.delivery)).toBe("job 0");
  });

  test("gets the room that another process leaves, and looks before it locks", () => {
    const { engine, driver } = openFull();
    const [waiting] = putAll(engine, 1, 1);
    engine.run();
    driver.log.length = 0;
    engine.foreign("UPDATE messages SET attempts = 1");
    engine.run();
    expect(driver.log).toEqual([]);
    engine.foreign("UPDATE messages SET status = 2; UPDATE localqueue_counts SET ready = 0, acked = 1");
    engine.run();
    expect(outcome(waiting as Call)).toBe("put");
  });

  test("has the directory watched, since others may make room", () => {
    const { engine } = openFull();
    Atomics.store(engine.signals, SIGNAL.watch, WATCH.off);
    putAll(engine, 1, 1);
    engine.run();
    expect(engine.watchesAskedFor).toBeGreaterThan(0);
  });

  test("finds the room that was there before a Python client came, and counts its jobs", () => {
    const { engine, directory } = openFull();
    const calls = putAll(engine, 2, 2);
    engine.run();
    expect(calls.map(outcome)).toEqual(["put", "waits"]);
    const python = openBare(directory);
    python.exec(`${PYTHON_INDEX}; UPDATE messages SET status = 2`);
    python.close();
    engine.run();
    expect(calls.map(outcome)).toEqual(["put", "put"]);
    expect(numbersIn(engine)).toEqual([{ ready: 1, processing: 0, acked: 2, failed: 0 }]);
  });

  test("ends at its time, and not before", () => {
    const { engine } = openFull();
    const calls = [300, 100, 200].map((waitMs) => putAll(engine, 1, 1, waitMs)[0] as Call);
    engine.run();
    const state = () => calls.map(outcome);
    engine.elapse(50);
    expect(state()).toEqual(["waits", "waits", "waits"]);
    engine.elapse(60);
    expect(state()).toEqual(["waits", "full", "waits"]);
    engine.elapse(100);
    expect(state()).toEqual(["waits", "full", "full"]);
    freeSlot(engine);
    expect(state()).toEqual(["put", "full", "full"]);
    engine.elapse(1000);
    expect(state()).toEqual(["put", "full", "full"]);
  });

  test("holds the line when it needs more room than there is, until its time is up", () => {
    const { engine } = open();
    engine.putMany(["a", "b", "c"]);
    engine.run();
    const large = engine.putMany(["d", "e"], { maxPending: 4, waitMs: 1000 });
    const small = engine.put("f", { maxPending: 4, waitMs: FOREVER });
    const hasty = engine.put("g", { maxPending: 4, waitMs: 0 });
    const elsewhere = engine.put("h", { maxPending: 4, waitMs: 0, queue: "other" });
    engine.run();
    expect([large, small, hasty, elsewhere].map(outcome)).toEqual(["waits", "waits", "full", "put"]);
    engine.elapse(1100);
    expect([large, small].map(outcome)).toEqual(["full", "put"]);
  });

  test("does not hold up those under a higher limit", () => {
    const { engine } = openFull();
    const [low] = putAll(engine, 1, 1);
    engine.run();
    const [high] = putAll(engine, 1, 2);
    engine.run();
    expect([low, high].map((call) => outcome(call as Call))).toEqual(["waits", "put"]);
  });

  test("can be withdrawn, and lets those behind it go on", () => {
    const { engine } = open();
    engine.putMany(["a", "b", "c"]);
    engine.run();
    const large = engine.putMany(["d", "e"], { maxPending: 4, waitMs: FOREVER });
    const small = engine.put("f", { maxPending: 4, waitMs: FOREVER });
    engine.run();
    engine.abort(large);
    engine.run();
    expect([large, small].map(outcome)).toEqual(["aborted", "put"]);
  });

  test("ends with its session, tried or not", () => {
    const { engine } = openFull();
    const [tried] = putAll(engine, 1, 1);
    engine.run();
    const [untried, other] = [
      engine.put("a", { maxPending: 1, waitMs: FOREVER }),
      engine.put("b", { maxPending: 1, waitMs: FOREVER, session: 2 }),
    ];
    engine.stopWaiting();
    engine.run();
    expect([tried, untried, other].map((call) => outcome(call as Call))).toEqual(["closed", "closed", "waits"]);
  });

  test("fails when the connection does", () => {
    const { engine, driver } = openFull();
    const calls = putAll(engine, 3, 1);
    engine.run();
    driver.plant({ at: "PRAGMA data_version", error: sqliteError("IOERR_READ") });
    engine.step();
    expect(calls.map(outcome)).toEqual(["IO", "IO", "IO"]);
    const [next] = putAll(engine, 1, 2);
    engine.elapse(1000);
    expect(outcome(next as Call)).toBe("put");
  });

  test("fails alone when it cannot be stored", () => {
    const { engine, driver, freeSlot } = openFull();
    const calls = putAll(engine, 3, 1);
    engine.run();
    driver.plant({ at: SQL.put, error: sqliteError("CONSTRAINT") });
    freeSlot();
    expect(calls.map(outcome)).toEqual(["IO", "put", "waits"]);
  });
});

describe("the lock of somebody else", () => {
  const DONE = "UPDATE messages SET status = 2; UPDATE localqueue_counts SET ready = 0, acked = 1";
  const UNDONE = "UPDATE messages SET status = 0; UPDATE localqueue_counts SET ready = 1, acked = 0";

  /** Each attempt to get the lock takes as long as it may, in vain. */
  function lock(engine: TestEngine, driver: FaultyDriver): void {
    const strikes = () => engine.clock.advance(50);
    driver.plant({ at: "BEGIN IMMEDIATE", times: FOREVER, error: sqliteError("BUSY"), strikes });
  }

  test("is waited for as long as a command may wait, once there is room", () => {
    const { engine, driver } = openFull();
    const calls = putAll(engine, 2, 1);
    engine.run();
    engine.foreign(DONE);
    lock(engine, driver);
    engine.elapse(29_000);
    expect(calls.map(outcome)).toEqual(["waits", "waits"]);
    engine.elapse(2000);
    expect(calls.map(outcome)).toEqual(["BUSY", "waits"]);
    driver.heal();
    engine.run();
    expect(calls.map(outcome)).toEqual(["BUSY", "put"]);
  });

  test("does not count against a put that waits on, because others took the room", () => {
    const { engine, driver } = openFull();
    const [waiting] = putAll(engine, 1, 1, 100_000);
    engine.run();
    engine.foreign(DONE);
    lock(engine, driver);
    engine.elapse(20_000);
    engine.foreign(UNDONE);
    engine.elapse(60_000);
    expect(outcome(waiting as Call)).toBe("waits");
    engine.elapse(30_000);
    expect(outcome(waiting as Call)).toBe("full");
  });
});

describe("the cost", () => {
  /** Statements, and milliseconds, for a hundred slots that come free one at a time while so many wait. */
  function costOfSlots(waiting: number): { statements: number; ms: number } {
    const { engine, driver, freeSlot } = openFull();
    const calls = Array.from({ length: waiting }, () => engine.newCall());
    engine.send(calls.map(({ id }, i) => putCommand(id, ["job"], { maxPending: 1, waitMs: 1_000_000 + i })));
    engine.run();
    for (let slot = 0; slot < 100; slot++) freeSlot();
    const count = counting(driver);
    const startedAt = performance.now();
    for (let slot = 0; slot < 100; slot++) freeSlot();
    const ms = performance.now() - startedAt;
    expect(calls.filter(({ answered }) => answered)).toHaveLength(200);
    return { statements: count.statements, ms };
  }

  test("of a slot that comes free is the same whether 500 or 50,000 wait for it", () => {
    const [few, many] = [costOfSlots(500), costOfSlots(50_000)];
    expect(many.statements).toBe(few.statements);
    expect(many.ms).toBeLessThan(few.ms * 5 + 100);
  });

  test("of a put is the same whatever the queue holds", () => {
    const { engine, driver } = open();
    // After a while of idleness an engine looks first whether the clock was set back; and it has to enter its name.
    engine.reclaim();
    putAll(engine, 1, 1, 0);
    engine.run();
    const count = counting(driver);
    const costOfPut = (limit: number): number => {
      const before = count.statements;
      const calls = putAll(engine, 1, limit, 0);
      engine.run();
      expect(calls.map(outcome)).toEqual(["put"]);
      return count.statements - before;
    };
    const first = costOfPut(2);
    engine.putMany(Array.from({ length: 5000 }, () => "job"));
    engine.run();
    expect(costOfPut(5003)).toBe(first);
  });

  test("of a look at a batch that has no room is that of the rows that would fit", () => {
    const { engine, driver } = openFull();
    const calls = [engine.newCall()];
    const job = { payload: "x", delayMs: 0, maxAttempts: 4 };
    const entries = Array.from({ length: 5000 }, (_, i) => ({ ...job, jobId: `job ${i}` }));
    engine.send([{ ...putCommand((calls[0] as Call).id, [], { maxPending: 5000, waitMs: FOREVER }), entries }]);
    engine.run();
    expect(calls.map(outcome)).toEqual(["waits"]);
    const full = engine.put("x", { jobId: "known" });
    engine.putMany(Array.from({ length: 4990 }, () => "x"));
    engine.run();
    expect(outcome(full)).toBe("put");
    const count = counting(driver);
    freeSlot(engine);
    expect(count.statements).toBeLessThan(100);
  });
});
