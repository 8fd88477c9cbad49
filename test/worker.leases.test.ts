import { LeaseExpiredError, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { steal } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";
import { drained, listenTo, start } from "./support/worker.ts";

describe("a handler that settles its job itself", () => {
  test.each(["ack", "nack", "fail", "release"] as const)("with %s has the last word", async (verb) => {
    for (const [how, act] of [
      ["waiting for it", (job: { [V in typeof verb]: () => Promise<void> }) => job[verb]()],
      ["without waiting", (job: { [V in typeof verb]: () => Promise<void> }) => void job[verb]()],
    ] as const) {
      const location = tempLocation();
      const queue = openQueue<string>({ location });
      await queue.put(how);
      const worker = new Worker(queue, act);
      const told = listenTo(worker);
      expect(await worker.runOnce()).toBe(true);
      const states = { ack: "acked", nack: "ready", fail: "failed", release: "ready" } as const;
      expect(await queue.stats()).toMatchObject({ processing: 0, [states[verb]]: 1 });
      const events = { ack: ["job:acked"], nack: ["job:retried"], fail: ["job:failed"], release: [] };
      expect(told.map(([name]) => name)).toEqual(events[verb]);
    }
  });

  test("through the queue, by its id and receipt, is noticed as well", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const boom = new Error("boom");
    const worker = new Worker(queue, ({ id, receipt }) => queue.fail({ id, receipt }, { lastError: boom }));
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:failed", "x", boom, "explicit_permanent_failure"]]);
  });

  test("and then throws has that reported, because it changes nothing", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const boom = new Error("boom");
    const worker = new Worker(queue, async (job) => {
      await job.ack();
      throw boom;
    });
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([
      ["job:acked", "x"],
      ["error", boom],
    ]);
    expect(await queue.stats()).toMatchObject({ acked: 1, ready: 0 });
  });

  test("may settle it twice: the first time counts", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const worker = new Worker(queue, async (job) => {
      const outcomes = await Promise.allSettled([job.nack({ delayMs: 60_000 }), job.ack()]);
      expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
    });
    const told = listenTo(worker);
    await worker.runOnce();
    expect(told).toEqual([["job:retried", "x", undefined, 60_000]]);
  });
});

describe("a lease that is lost while the handler runs", () => {
  test("aborts the signal, and the result is dropped", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location, leaseMs: 300 });
    await queue.put("x");
    let reason: unknown;
    const worker = new Worker(
      queue,
      async (job, { signal }) => {
        steal(location, job.id);
        await until(() => signal.aborted);
        reason = signal.reason;
      },
      { heartbeatMs: 30 },
    );
    const told = listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
    expect(told).toEqual([["lease:lost", "x"]]);
    expect(reason).toBeInstanceOf(LeaseExpiredError);
    expect(await queue.stats()).toMatchObject({ processing: 1 });
  });

  test("to another process that settled the job is noticed when it is settled again", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location });
    await queue.put("x");
    const worker = new Worker(queue, (job) => openQueue({ location }).ack(job));
    const told = listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
    expect(told).toEqual([["lease:lost", "x"]]);
    expect(await queue.stats()).toMatchObject({ acked: 1 });
  });

  test("without a heartbeat is noticed when the job is settled; the worker goes on", async () => {
    const queue = openQueue<string>({ leaseMs: 300 });
    await queue.putMany(["slow", "quick"]);
    const worker = new Worker(
      queue,
      async (job) => {
        if (job.data === "slow" && job.attempt === 1) await until(() => Date.now() > job.leaseExpiresAt.getTime() + 20);
      },
      { heartbeatMs: false },
    );
    const told = listenTo(worker);
    void start(worker);
    await until(() => told.length === 3);
    expect(told[0]).toEqual(["lease:lost", "slow"]);
    expect(told.slice(1).map(([name]) => name)).toEqual(["job:acked", "job:acked"]);
    await drained(queue);
  });

  test.each(["ack", "nack", "fail"] as const)("cannot be brought back by %s", async (verb) => {
    const queue = openQueue<string>({ leaseMs: 50 });
    await queue.put("x");
    const worker = new Worker(
      queue,
      async (job) => {
        await until(() => Date.now() > job.leaseExpiresAt.getTime());
        await expect(job[verb]()).rejects.toThrow(LeaseExpiredError);
      },
      { heartbeatMs: false },
    );
    const told = listenTo(worker);
    expect(await worker.runOnce()).toBe(true);
    expect(told).toEqual([["lease:lost", "x"]]);
    expect(await queue.stats()).toMatchObject({ acked: 0, failed: 0 });
  });
});
