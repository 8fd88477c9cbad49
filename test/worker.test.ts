import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { Reject, Retry, RetryPolicy, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { readRow } from "./support/database.ts";
import { thenable, throwing } from "./support/hostile.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";
import { collectWarnings, drained, gate, listenTo, start } from "./support/worker.ts";

const immediately = RetryPolicy.immediate();

describe("a handler", () => {
  test("gets each job once, and acknowledges it by returning", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2, 3]);
    const seen: number[] = [];
    const worker = new Worker(queue, (job) => {
      expect(job.attempt).toBe(1);
      seen.push(job.data);
    });
    const told = listenTo(worker);
    void start(worker);
    await drained(queue);
    expect(seen).toEqual([1, 2, 3]);
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 3, failed: 0 });
    await until(() => told.length === 3);
    expect(told).toEqual([
      ["job:acked", 1],
      ["job:acked", 2],
      ["job:acked", 3],
    ]);
  });

  test("may return anything, and may be asynchronous", async () => {
    const queue = openQueue<unknown>();
    const results = [
      undefined,
      null,
      false,
      new Error("returned, not thrown"),
      Promise.resolve(5),
      thenable((resolve) => resolve()),
    ];
    await queue.putMany(results.map((_, n) => n));
    void start(new Worker(queue, (job) => results[job.data as number]));
    await drained(queue);
    expect(await queue.stats()).toMatchObject({ acked: results.length, failed: 0 });
  });

  test("that throws has its job delivered again, after the delay of the policy", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location });
    await queue.put("x");
    const boom = new TypeError("boom");
    const times: number[] = [];
    const worker = new Worker(
      queue,
      (job) => {
        times.push(performance.now());
        if (job.attempt < 3) throw boom;
        expect(readRow(location, job.id)["last_error"]).toBe("TypeError: boom");
      },
      { retry: RetryPolicy.fixed(100) },
    );
    const told = listenTo(worker);
    void start(worker);
    await until(() => told.length === 3);
    expect(told).toEqual([
      ["job:retried", "x", boom, 100],
      ["job:retried", "x", boom, 100],
      ["job:acked", "x"],
    ]);
    const [first = 0, second = 0, third = 0] = times;
    expect(second - first).toBeGreaterThan(95);
    expect(third - second).toBeGreaterThan(95);
  });

  test("that throws at the last allowed delivery leaves a dead letter", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location, maxRetries: 1 });
    const { id } = await queue.put("x");
    const boom = new Error("boom");
    const worker = new Worker(queue, () => Promise.reject(boom), { retry: immediately });
    const told = listenTo(worker);
    void start(worker);
    await until(() => told.length === 2);
    expect(told).toEqual([
      ["job:retried", "x", boom, 0],
      ["job:failed", "x", boom, "retries_exhausted"],
    ]);
    expect(readRow(location, id)).toMatchObject({
      failure_reason: "retries_exhausted",
      last_error: "Error: boom",
      attempts: 2,
    });
  });

  test("waits two seconds, more or less, before the second delivery if nothing else is said", async () => {
    const queue = openQueue();
    await queue.put("x");
    const worker = new Worker(queue, () => {
      throw new Error("boom");
    });
    const told = listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
    expect(told[0]?.[3]).toBeGreaterThanOrEqual(1_000);
    expect(told[0]?.[3]).toBeLessThanOrEqual(2_000);
  });

  test("runs at most `concurrency` times at once, and that often if there is work", async () => {
    const queue = openQueue<number>();
    await queue.putMany(Array.from({ length: 40 }, (_, n) => n));
    let running = 0;
    let most = 0;
    const full = gate();
    const worker = new Worker(
      queue,
      async () => {
        most = Math.max(most, ++running);
        if (running === 8) full.open();
        await full.passed;
        await sleep(1);
        running--;
      },
      { concurrency: 8 },
    );
    void start(worker);
    await drained(queue);
    expect(most).toBe(8);
    expect(await queue.stats()).toMatchObject({ acked: 40 });
  });

  test("is never run by two workers for the same delivery", async () => {
    const location = tempLocation();
    const queues = [openQueue<number>({ location }), openQueue<number>({ location })] as const;
    await queues[0].putMany(Array.from({ length: 300 }, (_, n) => n));
    const seen: number[] = [];
    for (const queue of queues) void start(new Worker(queue, (job) => void seen.push(job.data), { concurrency: 4 }));
    await drained(queues[0]);
    expect(seen.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, n) => n));
  });

  test("may block the event loop for longer than the lease without losing the job", async () => {
    const queue = openQueue<string>({ leaseMs: 200, maxRetries: 0 });
    await queue.put("x");
    const worker = new Worker(queue, () => {
      const end = performance.now() + 700;
      while (performance.now() < end);
    });
    const told = listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
    expect(told).toEqual([["job:acked", "x"]]);
  });

  test("keeps its job for longer than the lease, and sees the lease move on", async () => {
    const queue = openQueue<string>({ leaseMs: 200, maxRetries: 0 });
    await queue.put("x");
    let moved = 0;
    const worker = new Worker(
      queue,
      async (job) => {
        const firstEnd = job.leaseExpiresAt.getTime();
        await until(() => Date.now() > firstEnd + 100);
        moved = job.leaseExpiresAt.getTime() - firstEnd;
      },
      { heartbeatMs: 50 },
    );
    const told = listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
    expect(told).toEqual([["job:acked", "x"]]);
    expect(moved).toBeGreaterThan(50);
  });
});

describe("a job that no retry can help", () => {
  class InvalidAddress extends Error {}
  class UnknownDomain extends InvalidAddress {}

  test.each([
    ["of a permanent class", new InvalidAddress("no @"), "InvalidAddress: no @"],
    ["of a subclass", new UnknownDomain("no such domain"), "UnknownDomain: no such domain"],
  ])("is one whose handler throws an error %s", async (_, thrown, lastError) => {
    const location = tempLocation();
    const queue = openQueue<string>({ location });
    const { id } = await queue.put("x");
    const worker = new Worker(queue, () => Promise.reject(thrown), { permanentErrors: [TypeError, InvalidAddress] });
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:failed", "x", thrown, "permanent_handler_error"]]);
    expect(readRow(location, id)).toMatchObject({ failure_reason: "permanent_handler_error", last_error: lastError });
  });

  test("is one that the handler rejects", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location });
    const { id } = await queue.put("x");
    const reject = new Reject("no such address", { category: "address" });
    const worker = new Worker(queue, () => {
      throw reject;
    });
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:failed", "x", reject, "rejected"]]);
    expect(readRow(location, id)).toMatchObject({
      failure_reason: "rejected",
      failure_category: "address",
      last_error: "Reject: no such address",
    });
  });

  test("is not one whose permanent class throws when it is asked", async () => {
    class Odd extends Error {
      static override [Symbol.hasInstance](): boolean {
        throw new Error("odd");
      }
    }
    const queue = openQueue<string>();
    await queue.put("x");
    const worker = new Worker(queue, () => Promise.reject(new Error("boom")), { permanentErrors: [Odd] });
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told[0]?.[0]).toBe("job:retried");
  });
});

describe("a handler that asks for a retry", () => {
  test("gets the delay that it asks for, even none", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location });
    const { id } = await queue.put("x");
    const worker = new Worker(queue, (job) => {
      throw job.attempt === 1 ? new Retry({ delayMs: 0, reason: "rate limited" }) : new Retry({ delayMs: 60_000 });
    });
    const told = listenTo(worker);
    await worker.runOnce();
    expect(readRow(location, id)["last_error"]).toBe("Retry: rate limited");
    await worker.runOnce();
    expect(readRow(location, id)["last_error"]).toBe("Retry");
    expect(told.map(([name, , , delayMs]) => [name, delayMs])).toEqual([
      ["job:retried", 0],
      ["job:retried", 60_000],
    ]);
  });

  test("gets that of the policy if it asks for none", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const worker = new Worker(queue, () => Promise.reject(new Retry()), { retry: RetryPolicy.fixed(1_234) });
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told[0]?.[3]).toBe(1_234);
  });

  test("uses up the budget all the same", async () => {
    const queue = openQueue<string>({ maxRetries: 0 });
    await queue.put("x");
    const worker = new Worker(queue, () => Promise.reject(new Retry({ delayMs: 0 })));
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told[0]).toMatchObject(["job:failed", "x", {}, "retries_exhausted"]);
  });
});

describe("a retry policy", () => {
  test("may be a function of the attempt and the error", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const boom = new Error("boom");
    const asked: unknown[] = [];
    const retry = (attempt: number, error: unknown): number => {
      asked.push([attempt, error]);
      return attempt * 10.4;
    };
    const worker = new Worker(queue, (job) => (job.attempt < 3 ? Promise.reject(boom) : undefined), { retry });
    const told = listenTo(worker);
    void start(worker);
    await until(() => told.length === 3);
    expect(asked).toEqual([
      [1, boom],
      [2, boom],
    ]);
    expect(told.map(([, , , delayMs]) => delayMs)).toEqual([10, 21, undefined]);
  });

  test.each<[string, () => unknown]>([
    ["throws", throwing(new Error("no idea"))],
    ["returns no number", () => "soon"],
    ["returns a promise", async () => 5],
    ["returns a promise that rejects", async () => throwing(new Error("no idea"))()],
    ["returns NaN", () => Number.NaN],
    ["returns a negative number", () => -1],
    ["returns too much", () => Number.MAX_VALUE],
    ["returns nothing", () => undefined],
  ])("that %s is reported, and the default policy holds", async (_, retry) => {
    const queue = openQueue<string>();
    await queue.put("x");
    const worker = new Worker(queue, () => Promise.reject(new Error("boom")), { retry: retry as () => number });
    const told = listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
    expect(told.map(([name]) => name)).toEqual(["error", "job:retried"]);
    expect(told[0]?.[1]).toBeInstanceOf(Error);
    expect(told[1]?.[3]).toBeGreaterThanOrEqual(1_000);
    await nextTurn();
  });

  test("with maxAttempts replaces the budget of the jobs", async () => {
    const queue = openQueue<string>({ maxRetries: 0 });
    await queue.put("x");
    const worker = new Worker(queue, () => Promise.reject(new Error("boom")), {
      retry: RetryPolicy.immediate({ maxAttempts: 3 }),
    });
    const told = listenTo(worker);
    void start(worker);
    await until(() => told.length === 3);
    expect(told.map(([name]) => name)).toEqual(["job:retried", "job:retried", "job:failed"]);
  });
});

describe("runOnce", () => {
  test("says whether there was a job, and does not wait for one", async () => {
    const queue = openQueue();
    const worker = new Worker(queue, () => {});
    expect(await worker.runOnce()).toBe(false);
    await queue.put("x");
    expect(await worker.runOnce()).toBe(true);
    expect(await worker.runOnce()).toBe(false);
    expect(await queue.stats()).toMatchObject({ acked: 1 });
  });

  test("is true whatever became of the job", async () => {
    const queue = openQueue();
    await queue.put("x");
    const worker = new Worker(queue, () => Promise.reject(new Reject("no")));
    listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
  });

  test("takes an expired job over", async () => {
    const queue = openQueue<string>({ leaseMs: 30 });
    await queue.put("x");
    const lost = await queue.get();
    await until(() => Date.now() > lost.leaseExpiresAt.getTime());
    expect(await new Worker(queue, (job) => expect(job.attempt).toBe(2)).runOnce()).toBe(true);
    expect(await queue.stats()).toMatchObject({ acked: 1 });
  });

  test("may be called several times at once, and beside run", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2, 3]);
    const all = gate();
    let running = 0;
    const worker = new Worker(queue, () => {
      if (++running === 3) all.open();
      return all.passed;
    });
    void start(worker);
    expect(await Promise.all([worker.runOnce(), worker.runOnce()])).toEqual([true, true]);
    await drained(queue);
  });
});

describe("a payload that cannot be decoded", () => {
  test("becomes a dead letter and is reported; the worker goes on to the next job", async () => {
    const location = tempLocation();
    const raw = { encode: (text: string) => Buffer.from(text), decode: String };
    await openQueue<string>({ location, serializer: raw }).putMany(["{secret", '"good"']);
    const queue = openQueue<string>({ location });
    const worker = new Worker(queue, () => {});
    const told = listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
    expect(told.map(([name]) => name)).toEqual(["error", "job:acked"]);
    expect(told[0]?.[1]).toMatchObject({
      code: "PAYLOAD",
      message: "Job 1 cannot be decoded: it becomes a dead letter",
    });
    expect(readRow(location, 1)["failure_reason"]).toBe("undecodable_payload");
  });
});

describe("dead letters that nobody hears of", () => {
  test("give one warning", async () => {
    const warnings = collectWarnings();
    const queue = openQueue<number>({ name: "emails" });
    await queue.putMany([1, 2]);
    const worker = new Worker(queue, () => Promise.reject(new Reject("no")));
    await worker.runOnce();
    await worker.runOnce();
    await nextTurn();
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatchObject({
      code: "LOCALQUEUE_UNHEARD_DEAD_LETTER",
      message:
        'Job 1 of queue "emails" became a dead letter (rejected), and nobody listens for "job:failed" or "error" of its worker',
    });
  });

  test.each(["job:failed", "error"] as const)("give none when somebody listens for %s", async (event) => {
    const warnings = collectWarnings();
    const queue = openQueue();
    await queue.put(1);
    const worker = new Worker(queue, () => Promise.reject(new Reject("no")));
    worker.on(event, () => {});
    await worker.runOnce();
    await nextTurn();
    expect(warnings).toEqual([]);
  });
});
