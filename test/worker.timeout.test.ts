import { RetryPolicy, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";
import { drained, gate, listenTo, start } from "./support/worker.ts";

const timeout = expect.objectContaining({ name: "TimeoutError", message: "The handler ran longer than 100 ms" });

describe("a handler with a time-out", () => {
  test("is left alone if it is quick", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const worker = new Worker(queue, () => {}, { timeoutMs: 5_000 });
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:acked", "x"]]);
  });

  test("is aborted in time; its delivery failed, whatever it returns then", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location });
    const { id } = await queue.put("x");
    let reason: unknown;
    const worker = new Worker(
      queue,
      async (_, { signal }) => {
        await until(() => signal.aborted);
        reason = signal.reason;
        return "fine";
      },
      { timeoutMs: 100, retry: RetryPolicy.fixed(60_000) },
    );
    const told = listenTo(worker);
    const started = performance.now();
    expect(await worker.runOnce()).toBe(true);
    expect(performance.now() - started).toBeGreaterThan(95);
    expect(reason).toEqual(timeout);
    expect(told).toEqual([["job:retried", "x", timeout, 60_000]]);
    expect(readRow(location, id)["last_error"]).toBe("TimeoutError: The handler ran longer than 100 ms");
  });

  test("is not excused by what it throws then", async () => {
    const queue = openQueue<string>({ maxRetries: 0 });
    await queue.put("x");
    class Permanent extends Error {}
    const worker = new Worker(
      queue,
      async (_, { signal }) => {
        await until(() => signal.aborted);
        throw new Permanent();
      },
      { timeoutMs: 100, permanentErrors: [Permanent] },
    );
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:failed", "x", timeout, "handler_timeout"]]);
  });

  test("leaves a dead letter with a reason of its own after the last delivery", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location, maxRetries: 1 });
    const { id } = await queue.put("x");
    const worker = new Worker(queue, (_, { signal }) => until(() => signal.aborted), {
      timeoutMs: 100,
      retry: RetryPolicy.immediate(),
    });
    const told = listenTo(worker);
    void start(worker);
    await until(() => told.length === 2);
    expect(told[1]).toEqual(["job:failed", "x", timeout, "handler_timeout"]);
    expect(readRow(location, id)).toMatchObject({ failure_reason: "handler_timeout", attempts: 2 });
  });

  test("keeps its lease until it settles", async () => {
    const queue = openQueue<string>({ leaseMs: 200, maxRetries: 0 });
    await queue.put("x");
    const worker = new Worker(
      queue,
      async (job, { signal }) => {
        await until(() => signal.aborted);
        const end = job.leaseExpiresAt.getTime() + 100;
        await until(() => Date.now() > end);
      },
      { timeoutMs: 100 },
    );
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:failed", "x", timeout, "handler_timeout"]]);
  });

  test("that ignores the abort frees its slot after the grace; what it gives later is ignored", async () => {
    const queue = openQueue<string>();
    await queue.putMany(["stuck", "next"]);
    const release = gate();
    let late = false;
    const worker = new Worker(
      queue,
      async (job) => {
        if (job.data !== "stuck" || job.attempt > 1) return;
        await release.passed;
        late = true;
        throw new Error("too late");
      },
      { timeoutMs: 100, graceMs: 100, retry: RetryPolicy.immediate() },
    );
    const told = listenTo(worker);
    void start(worker);
    await drained(queue);
    await until(() => told.length === 3);
    expect(told[0]).toEqual(["job:retried", "stuck", timeout, 0]);
    expect(told.slice(1)).toEqual([
      ["job:acked", "stuck"],
      ["job:acked", "next"],
    ]);
    release.open();
    await until(() => late);
    await queue.stats();
    expect(told).toHaveLength(3);
  });

  test("that blocks the event loop has failed all the same", async () => {
    const queue = openQueue<string>({ leaseMs: 150, maxRetries: 0 });
    await queue.put("x");
    const worker = new Worker(
      queue,
      () => {
        const end = performance.now() + 400;
        while (performance.now() < end);
      },
      { timeoutMs: 100, graceMs: 5_000 },
    );
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:failed", "x", timeout, "handler_timeout"]]);
  });

  test("that settled its job by itself before is not failed afterwards", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const worker = new Worker(
      queue,
      async (job, { signal }) => {
        await job.ack();
        const acked = performance.now();
        await until(() => signal.aborted || performance.now() - acked > 300);
      },
      { timeoutMs: 100 },
    );
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:acked", "x"]]);
    expect(await queue.stats()).toMatchObject({ acked: 1, ready: 0, failed: 0 });
  });
});
