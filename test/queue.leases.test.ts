import { EmptyError, type Job, LeaseExpiredError, type SimpleQueue } from "localqueue";
import { describe, expect, test } from "vitest";
import { readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";

/** Short enough to run out during a test, long enough not to when it must not. */
const LEASE_MS = 150;

async function expire(job: Job<unknown>): Promise<void> {
  await until(() => Date.now() > job.leaseExpiresAt.getTime());
}

const settlements: [name: string, settle: (queue: SimpleQueue, job: Job<unknown>) => Promise<void>][] = [
  ["ack", (queue, job) => queue.ack(job)],
  ["nack", (queue, job) => queue.nack(job)],
  ["fail", (queue, job) => queue.fail(job)],
  ["release", (queue, job) => queue.release(job)],
  ["extendLease", (queue, job) => queue.extendLease(job, 1_000)],
];

describe("a job that is given back with nack", () => {
  test("is delivered again at once, with another receipt", async () => {
    const queue = openQueue();
    await queue.put("x");
    const first = await queue.get();
    await queue.nack(first);
    const second = await queue.getNowait();
    expect(second).toMatchObject({ id: first.id, data: "x", attempt: 2 });
    expect(second.receipt).not.toBe(first.receipt);
  });

  test("waits for its delay", async () => {
    const queue = openQueue();
    await queue.put("x");
    const started = performance.now();
    await (await queue.get()).nack({ delayMs: 200 });
    await expect(queue.getNowait()).rejects.toThrow(EmptyError);
    expect((await queue.get()).attempt).toBe(2);
    expect(performance.now() - started).toBeGreaterThan(195);
  });

  test("may be delayed for as long as can be stored", async () => {
    const queue = openQueue();
    await queue.put("x");
    await (await queue.get()).nack({ delayMs: 8_000_000_000_000_000 });
    await expect(queue.get({ timeoutMs: 50 })).rejects.toThrow(EmptyError);
    expect(await queue.stats()).toMatchObject({ ready: 1 });
  });

  test("does not hold up those behind it, and goes before them when it is due", async () => {
    const queue = openQueue<string>();
    await queue.putMany(["a", "b", "c"]);
    await (await queue.get()).nack({ delayMs: 100 });
    const due = Date.now() + 100;
    expect((await queue.get()).data).toBe("b");
    await until(() => Date.now() >= due);
    expect((await queue.get()).data).toBe("a");
  });

  test("becomes a dead letter after its last delivery", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, maxRetries: 2 });
    const { id } = await queue.put("x");
    for (const attempt of [1, 2, 3]) {
      const job = await queue.get();
      expect(job.attempt).toBe(attempt);
      await job.nack({ lastError: new TypeError(`no ${attempt}`) });
    }
    await expect(queue.getNowait()).rejects.toThrow(EmptyError);
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 1 });
    expect(readRow(location, id)).toMatchObject({
      failure_reason: "retries_exhausted",
      last_error: "TypeError: no 3",
      attempts: 3,
    });
  });

  test.each([
    ["nothing", {}, null],
    ["undefined", { lastError: undefined }, null],
    ["null", { lastError: null }, "null"],
    ["a text", { lastError: "smtp is down" }, "smtp is down"],
    ["a long error", { lastError: new Error("x".repeat(5_000)) }, `Error: ${"x".repeat(1_992)}…`],
    ["characters that not every database takes", { lastError: "a\0b\ud800" }, "a\uFFFDb\uFFFD"],
  ])("keeps %s as its last error", async (_, options, stored) => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const { id } = await queue.put("x");
    await (await queue.get()).nack(options);
    expect(readRow(location, id)["last_error"]).toBe(stored);
  });
});

describe("a job that fails for good", () => {
  test("becomes a dead letter at once", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const { id } = await queue.put("x");
    await queue.fail(await queue.get(), { lastError: new Error("no such address"), category: "address" });
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 1 });
    expect(readRow(location, id)).toMatchObject({
      failure_reason: "explicit_permanent_failure",
      failure_category: "address",
      last_error: "Error: no such address",
    });
  });
});

describe("a job that is released", () => {
  test("is ready at once, and the delivery does not count", async () => {
    const queue = openQueue({ maxRetries: 0 });
    await queue.put("x");
    for (let i = 0; i < 10; i++) {
      const job = await queue.getNowait();
      expect(job.attempt).toBe(1);
      await job.release();
    }
    expect(await queue.stats()).toMatchObject({ ready: 1, failed: 0 });
  });

  test("counts after ten times in a row, so that it cannot go on for ever", async () => {
    const queue = openQueue({ maxRetries: 0 });
    await queue.put("x");
    for (let i = 0; i < 11; i++) await (await queue.getNowait()).release();
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 1 });
  });
});

describe("a lease that runs out", () => {
  test("makes the job ready again, as reclaimExpiredLeases says", async () => {
    const queue = openQueue({ leaseMs: LEASE_MS });
    await queue.put("x");
    const job = await queue.get();
    expect(await queue.reclaimExpiredLeases()).toBe(0);
    await expire(job);
    expect(await queue.reclaimExpiredLeases()).toBe(1);
    expect(await queue.stats()).toMatchObject({ ready: 1, processing: 0 });
    expect((await queue.getNowait()).attempt).toBe(2);
  });

  test("is noticed by the next claim, and by one that waits", async () => {
    const queue = openQueue({ leaseMs: LEASE_MS });
    await queue.put("x");
    const first = await queue.get();
    const second = await queue.get({ timeoutMs: 5_000 });
    expect(Date.now()).toBeGreaterThanOrEqual(first.leaseExpiresAt.getTime());
    expect(second).toMatchObject({ id: first.id, attempt: 2 });
  });

  test("for the last allowed time makes the job a dead letter", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, leaseMs: 30, maxRetries: 2 });
    const { id } = await queue.put("x");
    for (const attempt of [1, 2, 3]) {
      const job = await queue.get();
      expect(job.attempt).toBe(attempt);
      await expire(job);
    }
    await expect(queue.getNowait()).rejects.toThrow(EmptyError);
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 1 });
    expect(readRow(location, id)).toMatchObject({ failure_reason: "retries_exhausted", attempts: 3 });
  });

  test.each(settlements)("ends the holder's right to %s, even if nobody else took the job", async (_, settle) => {
    const queue = openQueue({ leaseMs: 30 });
    await queue.put("x");
    const job = await queue.get();
    await expire(job);
    await expect(settle(queue, job)).rejects.toThrow(LeaseExpiredError);
    await expect(settle(queue, job)).rejects.toMatchObject({ code: "LEASE_EXPIRED" });
  });

  test.each(settlements)(
    "leaves nothing to %s for the former holder when somebody else has the job",
    async (_, settle) => {
      const queue = openQueue({ leaseMs: LEASE_MS });
      await queue.put("x");
      const first = await queue.get();
      await expire(first);
      const second = await queue.get();
      await expect(settle(queue, first)).rejects.toThrow(LeaseExpiredError);
      await queue.ack(second);
      expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
    },
  );

  test("can be put off", async () => {
    const queue = openQueue({ leaseMs: LEASE_MS });
    await queue.put("x");
    const job = await queue.get();
    const firstEnd = job.leaseExpiresAt;
    await job.extendLease(60_000);
    expect(job.leaseExpiresAt.getTime()).toBeGreaterThan(Date.now() + 50_000);
    await until(() => Date.now() > firstEnd.getTime() + 50);
    await expect(queue.getNowait()).rejects.toThrow(EmptyError);
    await job.ack();
  });

  test("can be brought forward", async () => {
    const queue = openQueue();
    await queue.put("x");
    const job = await queue.get();
    await queue.extendLease(job, 30);
    expect(job.leaseExpiresAt.getTime()).toBeLessThanOrEqual(Date.now() + 30);
    expect((await queue.get({ timeoutMs: 5_000 })).attempt).toBe(2);
  });
});

describe("whoever has the receipt", () => {
  test("needs nothing else than the id", async () => {
    const queue = openQueue();
    await queue.putMany(["a", "b", "c", "d"]);
    const [a, b, c, d] = (await queue.getMany(4)).map(({ id, receipt }) => ({ id, receipt }));
    if (!a || !b || !c || !d) throw new Error("four jobs were put");
    await queue.extendLease(a, 1_000);
    await Promise.all([queue.ack(a), queue.nack(b), queue.fail(c), queue.release(d)]);
    expect(await queue.stats()).toEqual({ ready: 2, processing: 0, acked: 1, failed: 1 });
  });

  test("can settle once", async () => {
    const queue = openQueue();
    await queue.put("x");
    const job = await queue.get();
    const outcomes = await Promise.allSettled([job.ack(), job.ack(), job.nack(), job.fail()]);
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected", "rejected"]);
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  });

  test.each(settlements)("cannot %s with a receipt that was made up", async (_, settle) => {
    const queue = openQueue();
    await queue.put("x");
    const job = await queue.get();
    await expect(settle(queue, { ...job, id: job.id, receipt: "made up" } as Job<unknown>)).rejects.toThrow(
      LeaseExpiredError,
    );
    await expect(settle(queue, { ...job, id: 4_711, receipt: job.receipt } as Job<unknown>)).rejects.toThrow(
      LeaseExpiredError,
    );
    expect(await queue.stats()).toMatchObject({ processing: 1 });
  });
});

test("the job's own methods do what the queue's do", async () => {
  const location = tempLocation();
  const queue = openQueue({ location });
  await queue.putMany(["a", "b", "c", "d"]);
  const [a, b, c, d] = await queue.getMany(4);
  await a?.ack();
  await b?.nack({ delayMs: 60_000, lastError: "b" });
  await c?.fail({ lastError: "c", category: "x" });
  await d?.extendLease(1_000);
  await d?.release();
  expect(await queue.stats()).toEqual({ ready: 2, processing: 0, acked: 1, failed: 1 });
  expect(readRow(location, 2)).toMatchObject({ last_error: "b", attempts: 1 });
  expect(readRow(location, 3)).toMatchObject({ last_error: "c", failure_category: "x" });
  expect(readRow(location, 4)).toMatchObject({ attempts: 0 });
});
