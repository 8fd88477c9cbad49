import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { type Job, QueueClosedError, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";
import { drained, gate, listenTo, start } from "./support/worker.ts";

describe("stopping", () => {
  test("ends a worker that waits for work, at once", async () => {
    const queue = openQueue();
    const worker = new Worker(queue, () => {}, { concurrency: 3 });
    const running = worker.run();
    await queue.stats();
    const started = performance.now();
    await worker.stop();
    await running;
    expect(performance.now() - started).toBeLessThan(500);
  });

  test("lets running handlers finish, and starts no others", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2, 3]);
    const finish = gate();
    const seen: number[] = [];
    const worker = new Worker(
      queue,
      (job) => {
        seen.push(job.data);
        return finish.passed;
      },
      { concurrency: 2 },
    );
    const told = listenTo(worker);
    const running = start(worker);
    await until(() => seen.length === 2);
    const stopping = worker.stop();
    await queue.put(4);
    finish.open();
    await stopping;
    await running;
    expect(seen).toEqual([1, 2]);
    expect(told.map(([name]) => name)).toEqual(["job:acked", "job:acked"]);
    expect(await queue.stats()).toEqual({ ready: 2, processing: 0, acked: 2, failed: 0 });
  });

  test("keeps the leases of the handlers that finish", async () => {
    const queue = openQueue<string>({ leaseMs: 150, maxRetries: 0 });
    await queue.put("x");
    const finish = gate();
    let running: Job<string> | undefined;
    const worker = new Worker(queue, (job) => {
      running = job;
      return finish.passed;
    });
    const told = listenTo(worker);
    void start(worker);
    const job = (await until(() => running)) as Job<string>;
    const firstEnd = job.leaseExpiresAt.getTime();
    const stopping = worker.stop();
    await until(() => job.leaseExpiresAt.getTime() > firstEnd + 250);
    finish.open();
    await stopping;
    expect(told).toEqual([["job:acked", "x"]]);
  });

  test("is done once, whoever asks for it", async () => {
    const worker = new Worker(openQueue(), () => {});
    const running = start(worker);
    const stopping = worker.stop();
    expect(worker.stop()).toBe(stopping);
    await Promise.all([stopping, running]);
    await worker.stop();
  });

  test("is what the signal of `run` does", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const controller = new AbortController();
    const worker = new Worker(queue, () => controller.abort());
    const told = listenTo(worker);
    await worker.run({ signal: controller.signal });
    expect(told).toEqual([["job:acked", "x"]]);
    await expect(worker.run()).rejects.toThrow(QueueClosedError);
  });

  test("may come before the start: nothing is claimed then", async () => {
    const queue = openQueue();
    await queue.put("x");
    const handler = (): never => {
      throw new Error("It was run.");
    };
    await new Worker(queue, handler).run({ signal: AbortSignal.abort() });
    const stopped = new Worker(queue, handler);
    await stopped.stop();
    await expect(stopped.run()).rejects.toMatchObject({ code: "CLOSED" });
    await expect(stopped.runOnce()).rejects.toMatchObject({ code: "CLOSED" });
    expect(await queue.stats()).toMatchObject({ ready: 1 });
  });

  test("is what `await using` leaves behind", async () => {
    const queue = openQueue();
    let running: Promise<void>;
    {
      await using worker = new Worker(queue, () => {});
      running = worker.run();
    }
    await running;
  });

  test("waits for runOnce, too", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const finish = gate();
    const worker = new Worker(queue, () => finish.passed);
    const once = worker.runOnce();
    await until(async () => (await queue.stats()).processing === 1);
    let stopped = false;
    const stopping = worker.stop().then(() => {
      stopped = true;
    });
    await queue.stats();
    expect(stopped).toBe(false);
    finish.open();
    await stopping;
    expect(await once).toBe(true);
    expect(await queue.stats()).toMatchObject({ acked: 1 });
  });

  test("from inside a handler lets that handler finish", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2]);
    const worker = new Worker(queue, () => void worker.stop());
    await worker.run();
    expect(await queue.stats()).toMatchObject({ ready: 1, acked: 1 });
  });

  test("a hundred times, at any moment, loses no job and runs none twice", async () => {
    // The first jobs may be given back more than ten times in a row, which counts.
    const queue = openQueue<number>({ maxRetries: 100 });
    await queue.putMany(Array.from({ length: 400 }, (_, n) => n));
    const seen: number[] = [];
    for (let round = 0; round < 100 && (await queue.stats()).ready > 0; round++) {
      const worker = new Worker(queue, (job) => void seen.push(job.data), { concurrency: 1 + (round % 3) });
      const running = worker.run();
      for (let turn = 0; turn < round % 7; turn++) await nextTurn();
      await Promise.all([worker.stop(), worker.stop(), running]);
      expect(await queue.stats()).toMatchObject({ processing: 0 });
    }
    void start(new Worker(queue, (job) => void seen.push(job.data), { concurrency: 10 }));
    await drained(queue);
    expect(seen.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 400 }, (_, n) => n));
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 400, failed: 0 });
  });
});

describe("a handler that still runs at the end of the grace", () => {
  test("is aborted, and settled as usual if it returns then", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const worker = new Worker(queue, (_, { signal }) => until(() => signal.aborted), { graceMs: 50 });
    const told = listenTo(worker);
    void start(worker);
    await until(async () => (await queue.stats()).processing === 1);
    await worker.stop();
    expect(told).toEqual([["job:acked", "x"]]);
  });

  test("gives its job back uncounted if it only throws the abort", async () => {
    const queue = openQueue<string>({ maxRetries: 0 });
    for (const [how, handler] of [
      ["itself", (signal: AbortSignal) => until(() => signal.aborted).then(() => Promise.reject(signal.reason))],
      ["by an interface of Node", (signal: AbortSignal) => sleep(60_000, undefined, { signal })],
      [
        "by throwIfAborted",
        async (signal: AbortSignal) => {
          await until(() => signal.aborted);
          signal.throwIfAborted();
        },
      ],
    ] as const) {
      await queue.put(how);
      const worker = new Worker(queue, (_, { signal }) => handler(signal), { graceMs: 0 });
      const told = listenTo(worker);
      void start(worker);
      await until(async () => (await queue.stats()).processing === 1);
      await worker.stop();
      expect(told).toEqual([]);
      const job = await queue.getNowait();
      expect(job).toMatchObject({ data: how, attempt: 1 });
      await job.ack();
    }
  });

  test("uses up a delivery if it throws anything else", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const boom = new Error("boom");
    const handler = (_: unknown, { signal }: { signal: AbortSignal }): Promise<never> =>
      until(() => signal.aborted).then(() => Promise.reject(boom));
    const worker = new Worker(queue, handler, { graceMs: 0 });
    const told = listenTo(worker);
    void start(worker);
    await until(async () => (await queue.stats()).processing === 1);
    await worker.stop();
    expect(told).toEqual([["job:retried", "x", boom, expect.any(Number)]]);
  });

  test("keeps its lease until that expires, and is not waited for, if it ignores the abort", async () => {
    const queue = openQueue<string>({ leaseMs: 500 });
    await queue.put("x");
    const finish = gate();
    const worker = new Worker(queue, () => finish.passed, { graceMs: 50, heartbeatMs: 100 });
    const told = listenTo(worker);
    const running = start(worker);
    await until(async () => (await queue.stats()).processing === 1);
    const started = performance.now();
    await worker.stop();
    await running;
    expect(performance.now() - started).toBeGreaterThan(1_000);
    expect(performance.now() - started).toBeLessThan(2_000);
    expect(await queue.stats()).toMatchObject({ processing: 1 });
    const again = await queue.get({ timeoutMs: 5_000 });
    expect(again.attempt).toBe(2);
    finish.open();
    await nextTurn();
    expect(told).toEqual([]);
    await again.ack();
  });

  test("may still settle the job itself while its lease lasts", async () => {
    const queue = openQueue<string>();
    await queue.put("x");
    const finish = gate();
    const settled = gate();
    const worker = new Worker(
      queue,
      async (job) => {
        await finish.passed;
        await job.ack();
        settled.open();
      },
      { graceMs: 0 },
    );
    void start(worker);
    await until(async () => (await queue.stats()).processing === 1);
    await worker.stop();
    finish.open();
    await settled.passed;
    expect(await queue.stats()).toMatchObject({ acked: 1 });
  });
});

describe("a worker", () => {
  test("runs once at a time", async () => {
    const worker = new Worker(openQueue(), () => {});
    const running = start(worker);
    await expect(worker.run()).rejects.toThrow("This worker is running already");
    await worker.stop();
    await running;
  });

  test("with a decoder that never answers can be stopped: the job goes back", async () => {
    const stuck = { encode: (text: string) => Buffer.from(text), decode: () => new Promise<string>(() => {}) };
    const queue = openQueue<string>({ serializer: stuck });
    await queue.put("x");
    const worker = new Worker(queue, () => {}, { graceMs: 0 });
    const running = start(worker);
    await until(async () => (await queue.stats()).processing === 1);
    await worker.stop();
    await running;
    expect(await queue.stats()).toMatchObject({ ready: 1, processing: 0 });
  });
});
