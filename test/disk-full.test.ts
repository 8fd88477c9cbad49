import fs from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Job, type SimpleQueue, StorageError, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { openDatabase, readRow } from "./support/database.ts";
import { openQueue } from "./support/queue.ts";
import { RemoteQueue } from "./support/remote-queue.ts";
import { type DiskKind, describeSmallDisks, SmallDisk } from "./support/small-disk.ts";
import { until } from "./support/until.ts";
import { gate, listenTo, start } from "./support/worker.ts";

const NO_ROOM = { name: "StorageError", code: "DISK_FULL", outcome: "failed" };
const KINDS: readonly DiskKind[] = ["tmpfs", "ext4"];

interface Scene {
  readonly disk: SmallDisk;
  readonly directory: string;
  readonly queue: SimpleQueue;
  /** Jobs that are being worked on. */
  readonly held: Job<unknown>[];
}

/** A queue on a small disk, with jobs that are held. */
async function open(
  kind: DiskKind,
  { mib = 24, jobs = 30, held = 20, text = "x", block = "4096" } = {},
): Promise<Scene> {
  const disk = new SmallDisk(kind, mib, block);
  const directory = path.join(disk.directory, "queue");
  const queue = openQueue({ location: directory });
  for (let i = 0; i < jobs; i++) await queue.put({ i, text });
  await until(() => reserveOf(directory) > 0);
  const deliveries: Job<unknown>[] = [];
  for (let i = 0; i < held; i++) deliveries.push(await queue.getNowait());
  return { disk, directory, queue, held: deliveries };
}

function reserveOf(directory: string): number {
  return fs.statSync(path.join(directory, "localqueue.reserve"), { throwIfNoEntry: false })?.size ?? 0;
}

/** Puts, many at a time, until one is refused; returns how many were not. */
async function putUntilFull(queue: SimpleQueue, bytes: number): Promise<number> {
  const text = "x".repeat(bytes);
  for (let stored = 0; ; ) {
    const puts = await Promise.allSettled(Array.from({ length: 50 }, () => queue.put({ text })));
    stored += puts.filter(({ status }) => status === "fulfilled").length;
    const refused = puts.find(({ status }) => status === "rejected");
    if (refused === undefined) continue;
    expect((refused as PromiseRejectedResult).reason).toMatchObject(NO_ROOM);
    return stored;
  }
}

/** Everything that may be done with a job that is held. */
async function settle(held: readonly Job<unknown>[]): Promise<void> {
  const [extended, nacked, failed, released, ...acked] = held;
  await extended?.extendLease(60_000);
  await nacked?.nack();
  await failed?.fail({ lastError: "no use" });
  await released?.release();
  await Promise.all(acked.slice(5).map((job) => job.ack()));
  for (const job of acked.slice(0, 5)) await job.ack();
  await extended?.ack();
}

/** Takes and acknowledges so many jobs, one at a time. */
async function work(queue: SimpleQueue, jobs: number): Promise<void> {
  for (let done = 0; done < jobs; done++) await (await queue.getNowait()).ack();
}

/** Resolves as soon as a put succeeds. */
async function putAtLast(queue: SimpleQueue, timeoutMs: number): Promise<void> {
  await until(() => queue.put("at last").then(Boolean, () => false), timeoutMs);
}

describeSmallDisks("a full disk", () => {
  describe.each(KINDS)("(%s)", (kind) => {
    test.each([300, 20_000])(
      "that puts of %i bytes filled: jobs are settled and claimed, puts go on later",
      async (bytes) => {
        const { disk, queue, held } = await open(kind);
        disk.fill(6 * 1024 * 1024);
        const stored = await putUntilFull(queue, bytes);
        await expect(queue.put("one more")).rejects.toMatchObject(NO_ROOM);
        await settle(held);
        const left = await queue.stats();
        expect(left).toEqual({ ready: 10 + stored + 2, processing: 0, acked: 17, failed: 1 });
        await work(queue, Math.min(500, left.ready));
        await expect(queue.put("one more")).rejects.toMatchObject(NO_ROOM);
        disk.clear();
        await putAtLast(queue, 5_000);
      },
    );

    test("that another program filled: the same, for as long as one likes, in old processes and in new ones", async () => {
      const { disk, directory, queue, held } = await open(kind, {
        mib: 64,
        jobs: 1_500,
        held: 40,
        text: "x".repeat(1_000),
      });
      disk.fill();
      await putUntilFull(queue, 10_000);
      await settle(held.slice(0, 20));
      await expect(queue.put("one more")).rejects.toMatchObject(NO_ROOM);
      await work(queue, 1_000);
      await queue.close();
      disk.fill();
      expect(reserveOf(directory)).toBeGreaterThan(0);
      const anew = new RemoteQueue(directory);
      const job = await anew.get();
      await anew.call("ack", job);
      await expect(anew.call("put", "one more")).rejects.toMatchObject({ code: "DISK_FULL" });
      await anew.end();
    });
  });

  test.each([8, 12, 16, 24])(
    "with small blocks, and %i KiB left, kills no process that opens the queue",
    async (left) => {
      const { disk, directory, queue } = await open("ext4", { block: "1024", held: 0 });
      await queue.close();
      disk.fill(left * 1024);
      const other = new RemoteQueue(directory);
      await other.call("ack", await other.get());
      await other.end();
      fs.truncateSync(path.join(directory, "localqueue.reserve"), 0);
      disk.fill(left * 1024);
      const late = new RemoteQueue(directory);
      await expect(late.get()).rejects.toMatchObject({ code: "DISK_FULL" });
      disk.clear();
      await late.call("ack", await late.get());
      await late.end();
    },
  );

  describe("is known to another process when one has drawn on the reserve", () => {
    async function drawnOn(): Promise<Scene & { readonly other: RemoteQueue }> {
      const scene = await open("tmpfs");
      const other = new RemoteQueue(scene.directory);
      await other.call("put", "room");
      await sleep(50); // so that it has to look again
      // There is still room for a few puts, but not for much.
      scene.disk.fill(16 * 1024);
      await putUntilFull(scene.queue, 4_000);
      return { ...scene, other };
    }

    test("before it puts anything large", async () => {
      const { disk, directory, queue, held, other } = await drawnOn();
      const spare = reserveOf(directory);
      const large = "x".repeat(100_000);
      await expect(other.call("put", large)).rejects.toMatchObject({ code: "DISK_FULL" });
      await expect(other.call("put", "none")).rejects.toMatchObject({ code: "DISK_FULL" });
      expect(reserveOf(directory)).toBe(spare);
      await settle(held);
      disk.clear();
      await until(() => other.call("put", "again").then(Boolean, () => false), 5_000);
      await putAtLast(queue, 5_000);
      await until(() => reserveOf(directory) > spare);
    });

    test("after one small put: it looks when that is answered", async () => {
      const { held, other } = await drawnOn();
      await other.call("put", "a last one").catch(() => {}); // there may be room for it
      await expect(other.call("put", "none")).rejects.toMatchObject({ code: "DISK_FULL" });
      await settle(held);
    });
  });

  test("does not end a worker's jobs: they are acknowledged, their leases renewed, and nothing is tried in vain", async () => {
    const { disk, directory, queue } = await open("ext4", { jobs: 40, held: 0 });
    const impatient = openQueue({ location: directory, leaseMs: 1_000 });
    const full = gate();
    const worker = new Worker(impatient, () => full.passed, { concurrency: 5 });
    const told = listenTo(worker);
    void start(worker);
    await until(async () => (await queue.stats()).processing === 5);
    disk.fill();
    await putUntilFull(queue, 10_000);
    const cpu = process.cpuUsage();
    const end = Date.now() + 5_000;
    await until(() => Number(readRow(directory, 1)["lease_until"]) > end);
    const { user, system } = process.cpuUsage(cpu);
    expect(user + system).toBeLessThan(1_500_000);
    full.open();
    await until(async () => (await queue.stats()).ready === 0 && (await queue.stats()).processing === 0);
    expect(new Set(told.map(([name]) => name))).toEqual(new Set(["job:acked"]));
    disk.clear();
    await putAtLast(queue, 5_000);
    await until(async () => (await queue.stats()).ready === 0);
  });

  test("without a reserve: a worker tries a few times, and goes on by itself soon after there is room", async () => {
    const { disk, directory, queue } = await open("tmpfs", { jobs: 3, held: 0 });
    const impatient = openQueue({ location: directory, leaseMs: 1_000 });
    const full = gate();
    const worker = new Worker(impatient, () => full.passed, { concurrency: 3 });
    const told = listenTo(worker);
    void start(worker);
    await until(async () => (await queue.stats()).processing === 3);
    fs.rmSync(path.join(directory, "localqueue.reserve"));
    disk.fill();
    full.open();
    await until(() => told.length > 0);
    const cpu = process.cpuUsage();
    const before = told.length;
    await sleep(3_000); // what is counted is how much happens in that time
    expect(told.length - before).toBeLessThan(9);
    const { user, system } = process.cpuUsage(cpu);
    expect(user + system).toBeLessThan(600_000);
    expect(told.every(([name, error]) => name === "error" && (error as StorageError).code === "DISK_FULL")).toBe(true);
    disk.clear();
    await until(async () => (await queue.stats()).acked === 3, 12_000);
    await putAtLast(queue, 1_000);
  });

  test("has room for jobs whose rows are large, too, however many are settled at once", async () => {
    const { disk, queue, held } = await open("tmpfs", { mib: 64, jobs: 40, held: 20, text: "x".repeat(400_000) });
    disk.fill();
    await putUntilFull(queue, 10_000);
    await Promise.all(held.map((job) => job.ack()));
    expect(await queue.stats()).toMatchObject({ processing: 0, acked: 20 });
  });

  test("because of one large put is that put's own misfortune", async () => {
    const { queue, held } = await open("tmpfs", { mib: 80 });
    const [large, small] = [queue.put({ text: "x".repeat(50 * 1024 * 1024) }), queue.put("small")];
    await expect(large).rejects.toMatchObject(NO_ROOM);
    await expect(small).resolves.toMatchObject({ inserted: true });
    await settle(held);
    await queue.put({ text: "x".repeat(25 * 1024 * 1024) });
  });

  test("takes puts again once rows of its own were deleted, since the file has room inside", async () => {
    const { disk, directory, queue, held } = await open("tmpfs", {
      mib: 60,
      jobs: 120,
      held: 110,
      text: "x".repeat(100_000),
    });
    disk.fill();
    await putUntilFull(queue, 10_000);
    await settle(held);
    const database = openDatabase(directory);
    database.exec("DELETE FROM messages WHERE status = 2");
    database.close();
    await putAtLast(queue, 5_000);
    for (let i = 0; i < 30; i++) await queue.put({ text: "x".repeat(100_000) });
    expect(disk.free).toBeLessThan(2 * 1024 * 1024);
  });

  test("too small for a reserve is no obstacle", async () => {
    const disk = new SmallDisk("tmpfs", 3);
    const queue = openQueue({ location: disk.directory });
    await queue.put("a job");
    await (await queue.get()).ack();
    expect(fs.readdirSync(disk.directory).sort()).toEqual(["localqueue.db", "localqueue.db-shm", "localqueue.db-wal"]);
    expect(await putUntilFull(queue, 1_000)).toBeGreaterThan(0);
    await expect(queue.put("one more")).rejects.toBeInstanceOf(StorageError);
  });
});
