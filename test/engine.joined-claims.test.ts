import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import type { Call, TestEngine } from "./support/engine-harness.ts";
import { openFaulty, statsOf } from "./support/faulty-engine.ts";
import { PYTHON_INDEX } from "./support/python-files.ts";

/** An engine whose queue holds jobs with these payloads. */
function openWith(payloads: readonly (string | Uint8Array)[]): ReturnType<typeof openFaulty> {
  const opened = openFaulty();
  opened.engine.putMany(payloads);
  opened.engine.run();
  opened.driver.log.length = 0;
  return opened;
}

function names(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `job ${i}`);
}

function claimAll(engine: TestEngine, count: number, options: Parameters<TestEngine["claim"]>[0] = {}): Call[] {
  const calls = Array.from({ length: count }, () => engine.claim(options));
  engine.run();
  return calls;
}

function textsOf(engine: TestEngine, calls: readonly Call[]): string[] {
  return calls.flatMap(({ claimed }) => (claimed ?? []).map((delivery) => engine.textOf(delivery)));
}

describe("many callers that claim at once", () => {
  test.each([3, 4, 5, 64, 65, 150])("%i of them get a job each, in the order of the jobs and of the calls", (count) => {
    const { engine, driver } = openWith(names(count + 1));
    const calls = claimAll(engine, count);
    expect(textsOf(engine, calls)).toEqual(names(count));
    expect(driver.count(SQL.claimRange) + driver.count(SQL.claim)).toBeLessThanOrEqual(3 + Math.ceil(count / 64));
    expect(statsOf(engine)).toEqual({ ready: 1, processing: count, acked: 0, failed: 0 });
  });

  test("each hold their job alone, by a receipt of its own, until the lease ends that they asked for", () => {
    const { engine } = openWith(names(10));
    const calls = claimAll(engine, 10, { leaseMs: 5000 });
    const deliveries = calls.map(({ delivery }) => delivery);
    expect(new Set(deliveries.map(({ receipt }) => receipt)).size).toBe(10);
    const stored = engine.rows("SELECT id, receipt, lease_until FROM messages ORDER BY id");
    expect(stored).toEqual(deliveries.map(({ id, receipt, leaseUntil }) => ({ id, receipt, lease_until: leaseUntil })));
    expect(deliveries.every(({ leaseUntil }) => leaseUntil <= engine.clock.wall + 5000)).toBe(true);
    const [first, second] = deliveries;
    if (first === undefined || second === undefined) throw new Error("too few deliveries");
    const stolen = engine.ack({ id: first.id, receipt: second.receipt });
    const acks = deliveries.map((delivery) => engine.ack(delivery));
    engine.run();
    expect(stolen.answer?.refused).toBe("lost");
    expect(acks.map(({ answer }) => answer?.settled)).toEqual(new Array(10).fill("acked"));
  });

  test("are told what belongs to each job", () => {
    const { engine } = openFaulty();
    for (let i = 0; i < 6; i++) engine.put(`job ${i}`, { jobId: `id ${i}`, context: `trace ${i}`, maxAttempts: i + 1 });
    engine.run();
    const createdAt = engine.rows("SELECT created_at FROM messages").map((row) => row["created_at"]);
    engine.clock.advance(1000);
    const calls = claimAll(engine, 6);
    for (const [i, { delivery }] of calls.entries()) {
      expect(delivery).toMatchObject({
        id: i + 1,
        attempt: 1,
        jobId: `id ${i}`,
        context: `trace ${i}`,
        enqueuedAt: createdAt[i],
      });
    }
    engine.elapse(20_000);
    const again = claimAll(engine, 6);
    // The first had one delivery only.
    expect(again.map(({ claimed }) => claimed?.[0]?.attempt)).toEqual([2, 2, 2, 2, 2, undefined]);
    expect(statsOf(engine)).toMatchObject({ processing: 5, failed: 1 });
  });

  test("that want different numbers of jobs are served in turn", () => {
    const { engine } = openWith(names(20));
    const calls = [5, 1, 7, 2].map((limit) => engine.claim({ limit }));
    engine.run();
    expect(calls.map(({ claimed }) => claimed?.length)).toEqual([5, 1, 7, 2]);
    expect(textsOf(engine, calls)).toEqual(names(15));
  });

  test("with leases of different lengths each get their own", () => {
    const { engine, driver } = openWith(names(12));
    const calls = Array.from({ length: 12 }, (_, i) => engine.claim({ leaseMs: i < 6 ? 1000 : 9000 }));
    engine.run();
    const lengths = calls.map(({ delivery }) => delivery.leaseUntil - engine.clock.wall > 1000);
    expect(lengths).toEqual([...new Array(6).fill(false), ...new Array(6).fill(true)]);
    expect(textsOf(engine, calls)).toEqual(names(12));
    expect(driver.count(SQL.claimRange)).toBe(2);
  });

  test("get what there is, and the rest of them nothing", () => {
    const { engine } = openWith(names(7));
    const calls = claimAll(engine, 10);
    expect(calls.map(({ claimed }) => claimed?.length)).toEqual([1, 1, 1, 1, 1, 1, 1, 0, 0, 0]);
  });

  test("leave alone what is between the jobs: delayed ones, those that are held, those of other queues", () => {
    const { engine } = openFaulty();
    for (let i = 0; i < 20; i++) {
      if (i % 4 === 1) engine.put(`delayed ${i}`, { delayMs: 60_000 });
      else if (i % 4 === 2) engine.put(`other ${i}`, { queue: "other" });
      else engine.put(`job ${i}`);
    }
    engine.run();
    claimAll(engine, 2);
    const untouched = "SELECT * FROM messages WHERE status <> 0 OR queue <> 'default' OR available_at > updated_at";
    const before = engine.rows(untouched);
    expect(before).toHaveLength(12);
    const calls = claimAll(engine, 8);
    expect(textsOf(engine, calls)).toEqual([4, 7, 8, 11, 12, 15, 16, 19].map((i) => `job ${i}`));
    const ids = new Set(calls.map(({ delivery }) => delivery.id));
    expect(engine.rows(untouched).filter((row) => !ids.has(row["id"] as number))).toEqual(before);
  });

  test.each([16 * 1024 + 1, 200_000, 2_000_000])("get a payload of %i bytes among small ones in its turn", (size) => {
    const payloads = names(30);
    for (const i of [0, 7, 8, 29]) payloads[i] = `${payloads[i]} ${"x".repeat(size)}`;
    const { engine } = openWith(payloads);
    const calls = claimAll(engine, 30);
    expect(textsOf(engine, calls)).toEqual(payloads);
  });

  test("are not kept waiting for large payloads: a batch takes about a mebibyte", () => {
    const { engine } = openWith(new Array(20).fill("x".repeat(300_000)));
    const calls = Array.from({ length: 20 }, () => engine.claim());
    engine.step();
    expect(calls.filter(({ answered }) => answered)).toHaveLength(4);
    engine.run();
    expect(calls.filter(({ claimed }) => claimed?.length === 1)).toHaveLength(20);
  });

  test("get bytes that are no text as bytes, and text as text", () => {
    const bytes = Uint8Array.of(0x22, 0xff, 0x22);
    const marked = Buffer.from('\uFEFF"marked"');
    const { engine } = openWith(["a", bytes, "ü", marked, "", Uint8Array.of(0)]);
    const calls = claimAll(engine, 6, { text: true });
    const payloads = calls.map(({ delivery: { payload } }) =>
      typeof payload === "string" ? payload : Buffer.from(payload).toString("hex"),
    );
    expect(payloads).toEqual(["a", "22ff22", "ü", marked.toString("hex"), "", "00"]);
  });

  test("do not get jobs that have used up the budget of their consumer: those become dead letters", () => {
    const { engine } = openWith(names(12));
    engine.foreign("UPDATE messages SET attempts = 2 WHERE id IN (3, 4, 12)");
    const consumer = engine.consume({ slots: 12, maxAttempts: 2 });
    const calls = Array.from({ length: 12 }, (_, slot) => consumer.claim(slot, { waitMs: 60_000 }));
    engine.run();
    const served = names(12).filter((_, i) => ![2, 3, 11].includes(i));
    expect(textsOf(engine, calls)).toEqual(served);
    expect(engine.rows("SELECT id, failure_reason, max_attempts FROM messages WHERE status = 3")).toEqual(
      [3, 4, 12].map((id) => ({ id, failure_reason: "retries_exhausted", max_attempts: 2 })),
    );
    expect(statsOf(engine)).toEqual({ ready: 0, processing: 9, acked: 0, failed: 3 });
  });

  test("are counted right beside Python's triggers", () => {
    const { engine } = openWith(names(30));
    engine.foreign(PYTHON_INDEX);
    const calls = claimAll(engine, 20);
    expect(textsOf(engine, calls)).toEqual(names(20));
    expect(statsOf(engine)).toMatchObject({ ready: 10, processing: 20 });
  });

  test("claim nothing if somebody's trigger keeps one of the jobs back, and say so", () => {
    const { engine } = openWith(names(8));
    engine.foreign(`CREATE TRIGGER keeps BEFORE UPDATE ON messages WHEN old.id = 5 AND new.status = 1
      BEGIN SELECT RAISE(IGNORE); END`);
    const calls = claimAll(engine, 8);
    expect(calls.every(({ error }) => error !== undefined)).toBe(true);
    expect(statsOf(engine)).toEqual({ ready: 8, processing: 0, acked: 0, failed: 0 });
  });
});
