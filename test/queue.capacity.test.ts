import { EnqueueItem, FullError, LocalQueueError, QueueClosedError, type SimpleQueue, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { faultsOf } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { Peer } from "./support/peer.ts";
import { openQueue } from "./support/queue.ts";
import { RemoteQueue } from "./support/remote-queue.ts";
import { rejection } from "./support/storage.ts";
import { until } from "./support/until.ts";

const AT_ONCE = { timeoutMs: 0 };

async function openFull(maxPendingJobs = 1): Promise<SimpleQueue> {
  const queue = openQueue({ maxPendingJobs });
  await queue.putMany(Array.from({ length: maxPendingJobs }, (_, n) => n));
  return queue;
}

describe("a queue with `maxPendingJobs`", () => {
  test("refuses what does not fit with a FullError that says what to do and quotes no payload", async () => {
    const queue = await openFull(2);
    const error = (await rejection(queue.put("secret", AT_ONCE))) as FullError;
    expect(error).toBeInstanceOf(FullError);
    expect(error).toBeInstanceOf(LocalQueueError);
    expect(error).toMatchObject({ name: "FullError", code: "FULL" });
    expect(error.message).toMatch(/`maxPendingJobs`.*try again/s);
    expect(error.message).not.toContain("secret");
    const large = (await rejection(queue.putMany(["secret", 2, 3]))) as FullError;
    expect(large).toBeInstanceOf(FullError);
    expect(large.message).toMatch(/in parts/);
    expect(await queue.stats()).toEqual({ ready: 2, processing: 0, acked: 0, failed: 0 });
  });

  test("holds any number of jobs without the option", async () => {
    const queue = openQueue();
    await queue.putMany(Array.from({ length: 5_000 }, (_, n) => n));
    await queue.put("one more", AT_ONCE);
  });

  test("takes an empty batch when it is full", async () => {
    const queue = await openFull();
    expect(await queue.putMany([], AT_ONCE)).toEqual([]);
  });

  test("counts only what is new of a batch", async () => {
    const queue = openQueue({ maxPendingJobs: 2 });
    const { id } = await queue.put(1, { jobId: "a" });
    const twice = [1, 2].map((n) => new EnqueueItem(n, { jobId: "b" }));
    const results = await queue.putMany([new EnqueueItem(0, { jobId: "a" }), ...twice], AT_ONCE);
    expect(results).toEqual([
      { id, inserted: false },
      { id: expect.any(Number), inserted: true },
      { id: results[1]?.id, inserted: false },
    ]);
    expect(await queue.putMany(twice, AT_ONCE)).toHaveLength(2);
    await expect(queue.putMany([...twice, 3], AT_ONCE)).rejects.toThrow(FullError);
  });

  test("is not searched for room, and the payload not encoded, if the time-out is misused", async () => {
    let encoded = 0;
    const serializer = {
      encode: () => {
        encoded++;
        return new Uint8Array(1);
      },
      decode: () => 0,
    };
    const queue = openQueue({ maxPendingJobs: 1, serializer });
    await expect(queue.put(1, { timeoutMs: -1 })).rejects.toThrow(RangeError);
    expect(encoded).toBe(0);
    await queue.put(1);
    // However long it waits, it is encoded once.
    encoded = 0;
    const waiting = queue.put(2);
    await expect(queue.putMany([3], { timeoutMs: 30 })).rejects.toThrow(FullError);
    await (await queue.get()).ack();
    await waiting;
    expect(encoded).toBe(2);
  });
});

describe("a put that waits for room", () => {
  test("waits for ever, until a job is done", async () => {
    const queue = await openFull();
    const waiting = queue.put("second");
    await expect(queue.put("third", { timeoutMs: 100 })).rejects.toThrow(FullError);
    await (await queue.get()).ack();
    expect(await waiting).toMatchObject({ inserted: true });
  });

  test("is refused within its time: 0 ms at once, 120 ms soon after them", async () => {
    const queue = await openFull();
    for (const [timeoutMs, least, most] of [
      [0, 0, 500],
      [120, 119, 1_500],
    ] as const) {
      const startedAt = performance.now();
      await expect(queue.put("second", { timeoutMs })).rejects.toThrow(FullError);
      const tookMs = performance.now() - startedAt;
      expect(tookMs).toBeGreaterThanOrEqual(least);
      expect(tookMs).toBeLessThan(most);
    }
  });

  test("ends with the signal's reason", async () => {
    const queue = await openFull();
    const reason = new Error("enough");
    const controller = new AbortController();
    const waiting = rejection(queue.put("second", { signal: controller.signal }));
    await queue.stats();
    controller.abort(reason);
    expect(await waiting).toBe(reason);
    await (await queue.get()).ack();
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  });

  test("ends at once when the queue closes, even while a handler is still running", async () => {
    const queue = await openFull();
    let finish = (): void => undefined;
    let late: unknown;
    const worker = new Worker(queue, async () => {
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      late = await rejection(queue.put("by the handler"));
    });
    const running = worker.run();
    await until(async () => (await queue.stats()).processing === 1);
    const waiting = [queue.put("second"), queue.putMany(["third"], { timeoutMs: 60_000 })].map(rejection);
    await queue.stats();
    const closing = queue.close();
    for (const error of await Promise.all(waiting)) expect(error).toBeInstanceOf(QueueClosedError);
    finish();
    await closing;
    await running;
    expect(late).toBeInstanceOf(QueueClosedError);
  });

  test("keeps pace with workers: producers that never look fill the queue no further than it may be", async () => {
    const queue = openQueue<number>({ maxPendingJobs: 10 });
    let most = 0;
    const seen: number[] = [];
    const worker = new Worker(
      queue,
      async ({ data }) => {
        const { ready, processing } = await queue.stats();
        most = Math.max(most, ready + processing);
        seen.push(data);
      },
      { concurrency: 3 },
    );
    const running = worker.run();
    const puts = Array.from({ length: 500 }, (_, n) => queue.put(n));
    await Promise.all(puts);
    await until(() => seen.length === 500);
    await worker.stop();
    await running;
    expect(most).toBeLessThanOrEqual(10);
    expect(seen.toSorted((a, b) => a - b)).toEqual(puts.map((_, n) => n));
  });
});

describe("several processes", () => {
  /** Longer than they may have to wait for each other's transactions. */
  const SOON = { timeoutMs: 1_500 };

  test("that race for the last places get exactly as many as there are", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const peers = Array.from({ length: 5 }, () => new Peer(location, { maxPendingJobs: 37 }));
    await Promise.all(peers.map((peer) => peer.stats()));
    const puts = peers.flatMap((peer, p) => Array.from({ length: 20 }, (_, n) => peer.put([p, n], SOON)));
    const outcomes = await Promise.allSettled(puts);
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(37);
    const reasons = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason.code] : []));
    expect(new Set(reasons)).toEqual(new Set(["FULL"]));
    expect(await queue.stats()).toEqual({ ready: 37, processing: 0, acked: 0, failed: 0 });
    expect(faultsOf(location)).toEqual([]);
  });

  test("put batches whole or not at all", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const peers = Array.from({ length: 4 }, () => new RemoteQueue(location, { maxPendingJobs: 20 }));
    await Promise.all(peers.map((peer) => peer.call("stats")));
    const batch = [1, 2, 3].map((data) => ({ data }));
    const puts = peers.flatMap((peer) => Array.from({ length: 5 }, () => peer.call("putMany", batch, SOON)));
    const outcomes = await Promise.allSettled(puts);
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(6);
    expect(await queue.stats()).toMatchObject({ ready: 18 });
    expect(faultsOf(location)).toEqual([]);
  });

  test("that wait are served by what is acknowledged in another", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.put("first");
    const peer = new Peer(location, { maxPendingJobs: 1 });
    await peer.stats();
    const waiting = peer.put("second");
    await expect(peer.put("third", { timeoutMs: 120 })).rejects.toMatchObject({ code: "FULL" });
    const job = await queue.get();
    const freed = performance.now();
    await job.ack();
    expect(await waiting).toMatchObject({ inserted: true });
    // Sooner than by looking from time to time.
    expect(performance.now() - freed).toBeLessThan(900);
    expect((await queue.get({ timeoutMs: 10_000 })).data).toBe("second");
  });

  test("that wait for the same places get all of them, and no more", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location });
    const peers = Array.from({ length: 3 }, () => new Peer(location, { maxPendingJobs: 2 }));
    await Promise.all(peers.map((peer) => peer.stats()));
    const puts = peers.flatMap((peer, p) => Array.from({ length: 20 }, (_, n) => peer.put(p * 100 + n)));
    const seen: number[] = [];
    for (let n = 0; n < puts.length; n++) {
      const job = await queue.get({ timeoutMs: 20_000 });
      const { ready, processing } = await queue.stats();
      expect(ready + processing).toBeLessThanOrEqual(2);
      seen.push(job.data);
      await job.ack();
    }
    await Promise.all(puts);
    // Those of one process in their order.
    for (const p of [0, 1, 2]) {
      const own = seen.filter((data) => Math.floor(data / 100) === p);
      expect(own).toEqual(Array.from({ length: 20 }, (_, n) => p * 100 + n));
    }
    expect(faultsOf(location)).toEqual([]);
  });

  test("keep the place of a job whose process died, until its lease has ended for good", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, maxPendingJobs: 1, maxRetries: 1 });
    await queue.put("first");
    for (const delivery of [1, 2]) {
      const holder = new Peer(location, { leaseMs: 300 });
      expect(await holder.get()).toMatchObject({ data: "first", attempt: delivery });
      await holder.kill();
      await expect(queue.put("second", { timeoutMs: 400 })).rejects.toThrow(FullError);
    }
    const waiting = queue.put("second");
    await queue.stats();
    expect(await queue.reclaimExpiredLeases()).toBe(1);
    await waiting;
    expect(await queue.stats()).toEqual({ ready: 1, processing: 0, acked: 0, failed: 1 });
  });

  test("lose nothing but their own wait when they are killed", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, maxPendingJobs: 1 });
    await queue.put("first");
    const peer = new Peer(location, { maxPendingJobs: 1 });
    await peer.stats();
    const lost = rejection(peer.put("of the killed one"));
    const waiting = queue.put("second");
    await expect(peer.put("third", { timeoutMs: 50 })).rejects.toMatchObject({ code: "FULL" });
    await peer.kill();
    await lost;
    await (await queue.get()).ack();
    await waiting;
    expect((await queue.get()).data).toBe("second");
    expect(faultsOf(location)).toEqual([]);
  });
});
