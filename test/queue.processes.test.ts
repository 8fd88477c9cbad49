import { LeaseExpiredError } from "localqueue";
import { describe, expect, test } from "vitest";
import { tempLocation } from "./support/location.ts";
import { Peer } from "./support/peer.ts";
import { openQueue } from "./support/queue.ts";

describe("two processes on one queue", () => {
  test("see each other's jobs and states", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const peer = new Peer(location);
    expect(await peer.put("x")).toEqual({ id: 1, inserted: true });
    expect(await queue.stats()).toMatchObject({ ready: 1 });
    const job = await queue.get();
    expect(job.data).toBe("x");
    expect(await peer.stats()).toMatchObject({ processing: 1 });
    await peer.ack({ id: job.id, receipt: job.receipt });
    expect(await queue.stats()).toMatchObject({ acked: 1 });
  });

  test("wake each other up", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const peer = new Peer(location);
    await peer.stats();
    const waiting = queue.get({ timeoutMs: 10_000 });
    await queue.stats();
    await peer.put("x");
    const put = performance.now();
    expect((await waiting).data).toBe("x");
    expect(performance.now() - put).toBeLessThan(900);
  });

  test("that put the same jobId at the same time put one job", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const peers = [new Peer(location), new Peer(location)];
    const puts = Array.from({ length: 20 }, (_, n) => peers.map((peer) => peer.put(n, { jobId: `job ${n}` }))).flat();
    const results = await Promise.all(puts);
    expect(results.filter(({ inserted }) => inserted)).toHaveLength(20);
    expect(new Set(results.map(({ id }) => id)).size).toBe(20);
    expect(await queue.stats()).toMatchObject({ ready: 20 });
  });

  test("fence each other: who lost the lease can change nothing", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, leaseMs: 200 });
    const peer = new Peer(location);
    await queue.put("x");
    const mine = await queue.get();
    const theirs = await peer.get({ timeoutMs: 10_000 });
    expect(theirs).toMatchObject({ id: mine.id, attempt: 2 });
    expect(theirs.receipt).not.toBe(mine.receipt);
    await expect(queue.ack(mine)).rejects.toThrow(LeaseExpiredError);
    await peer.ack(theirs);
    await expect(peer.ack(theirs)).rejects.toMatchObject({ code: "LEASE_EXPIRED" });
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  });
});

test("a process that is killed with a job loses it to the next when the lease ends", async () => {
  const location = tempLocation();
  const queue = openQueue({ location });
  const peer = new Peer(location, { leaseMs: 1_000 });
  await queue.put("x");
  expect(await peer.get()).toMatchObject({ data: "x", attempt: 1 });
  await peer.kill();
  expect(await queue.stats()).toMatchObject({ processing: 1 });
  expect(await queue.get({ timeoutMs: 10_000 })).toMatchObject({ data: "x", attempt: 2 });
});

test("many processes with many slots handle every job exactly once", async () => {
  const location = tempLocation();
  const queue = openQueue<number>({ location, maxRetries: 0 });
  await queue.putMany(Array.from({ length: 1_000 }, (_, n) => n));
  const peers = Array.from({ length: 4 }, () => new Peer(location));
  const seen = (await Promise.all(peers.map((peer) => peer.drain(5)))).flat() as number[];
  expect(seen.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 1_000 }, (_, n) => n));
  expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1_000, failed: 0 });
});
