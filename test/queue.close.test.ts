import { LeaseExpiredError, QueueClosedError, SimpleQueue, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { lockDatabase } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";

describe("a closed queue", () => {
  test("refuses everything, and says so", async () => {
    const queue = openQueue();
    await queue.put("x");
    const job = await queue.get();
    await queue.close();
    for (const call of [
      () => queue.put(1),
      () => queue.putMany([1]),
      () => queue.putMany([]),
      () => queue.get(),
      () => queue.getNowait(),
      () => queue.getMany(1),
      () => queue.ack(job),
      () => queue.nack(job),
      () => queue.fail(job),
      () => queue.release(job),
      () => queue.extendLease(job, 1_000),
      () => job.ack(),
      () => queue.reclaimExpiredLeases(),
      () => queue.stats(),
      () => new Worker(queue, () => {}).run(),
      () => new Worker(queue, () => {}).runOnce(),
    ]) {
      await expect(call()).rejects.toThrow(QueueClosedError);
      await expect(call()).rejects.toMatchObject({ code: "CLOSED" });
    }
    expect(() => queue.jobs()).toThrow(QueueClosedError);
  });

  test("can be closed again, at the same time or later", async () => {
    const queue = openQueue();
    await queue.put(1);
    const closing = queue.close();
    expect(queue.close()).toBe(closing);
    await closing;
    await queue.close();
  });

  test("need never have been open", async () => {
    const queue = new SimpleQueue("/nonexistent/localqueue");
    await queue.close();
    await expect(queue.put(1)).rejects.toThrow(QueueClosedError);
  });

  test("leaves the other queues on its database open", async () => {
    const location = tempLocation();
    const a = openQueue({ location });
    const b = openQueue({ location });
    await a.put(1);
    await a.close();
    expect((await b.get()).data).toBe(1);
  });

  test("is what `await using` leaves behind", async () => {
    const location = tempLocation();
    let queue: SimpleQueue;
    {
      await using scoped = new SimpleQueue(location);
      queue = scoped;
      await scoped.put(1);
    }
    await expect(queue.stats()).rejects.toThrow(QueueClosedError);
  });
});

describe("closing", () => {
  test("ends at once what waits for a job", async () => {
    const queue = openQueue();
    const waiting = [
      queue.get(),
      queue.get({ timeoutMs: 60_000 }),
      queue.get({ signal: new AbortController().signal }),
      queue.getMany(5),
    ];
    const iterating = (async () => {
      for await (const _ of queue.jobs()) throw new Error("There was no job.");
    })();
    await queue.stats();
    const started = performance.now();
    const closing = queue.close();
    for (const call of waiting) await expect(call).rejects.toThrow(QueueClosedError);
    await iterating;
    await closing;
    expect(performance.now() - started).toBeLessThan(1_000);
  });

  test("commits what was accepted before", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const puts = Array.from({ length: 100 }, (_, n) => queue.put(n));
    await queue.close();
    await Promise.all(puts);
    expect(await openQueue({ location }).stats()).toMatchObject({ ready: 100 });
  });

  test("commits all that was accepted before, however much it is", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.put("first");
    const puts = Array.from({ length: 80_000 }, (_, n) => queue.put({ n }));
    const outcomes = Promise.allSettled(puts);
    await queue.close();
    expect((await outcomes).filter(({ status }) => status === "rejected")).toEqual([]);
    expect(await openQueue({ location }).stats()).toMatchObject({ ready: 80_001 });
  });

  test("takes no longer than half a second when the database is locked", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.put(1);
    const unlock = lockDatabase(location);
    const put = queue.put(2).catch((error: unknown) => error);
    const started = performance.now();
    await queue.close();
    expect(performance.now() - started).toBeLessThan(2_000);
    expect(await put).toMatchObject({ code: "BUSY", outcome: "failed" });
    unlock();
    expect(await openQueue({ location }).stats()).toMatchObject({ ready: 1 });
  });

  test("leaves jobs leased that were claimed by hand; they come back when their lease ends", async () => {
    const location = tempLocation();
    const first = openQueue({ location, leaseMs: 300 });
    await first.put("x");
    const job = await first.get();
    await first.close();
    const second = openQueue({ location, leaseMs: 300 });
    expect(await second.stats()).toMatchObject({ processing: 1 });
    const again = await second.get({ timeoutMs: 5_000 });
    expect(again).toMatchObject({ id: job.id, attempt: 2 });
    expect(again.receipt).not.toBe(job.receipt);
    await expect(second.ack(job)).rejects.toThrow(LeaseExpiredError);
    await second.ack(again);
  });
});

describe("closing a queue with a worker", () => {
  test("lets the handler finish, which may still use the queue", async () => {
    const location = tempLocation();
    const queue = openQueue<string>({ location });
    await queue.putMany(["x", "y"]);
    let finish = (): void => {};
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    let started = false;
    const worker = new Worker(queue, async () => {
      started = true;
      await finished;
      await queue.put("follow-up");
      await queue.putMany(["another", "and another"]);
    });
    const running = worker.run();
    await until(() => started);
    const waiting = queue.get({ signal: new AbortController().signal });
    let closed = false;
    const closing = queue.close().then(() => {
      closed = true;
    });
    await expect(waiting).rejects.toThrow(QueueClosedError);
    await expect(queue.getNowait()).rejects.toThrow(QueueClosedError);
    expect(closed).toBe(false);
    finish();
    await closing;
    await running;
    expect(await openQueue({ location }).stats()).toEqual({ ready: 4, processing: 0, acked: 1, failed: 0 });
  });

  test("ends a worker that waits for work", async () => {
    const queue = openQueue();
    const running = new Worker(queue, () => {}, { concurrency: 5 }).run();
    await queue.stats();
    await queue.close();
    await running;
  });
});
