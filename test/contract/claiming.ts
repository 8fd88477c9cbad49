import { describe, expect, test } from "vitest";
import { MAX_RELEASES } from "../../dist/state.js";
import type { Consumer, ConsumerSettings, Delivery, Storage } from "../../dist/storage/storage.js";
import type { Backend } from "../support/backend.ts";
import { expectRightCounts, LEASE_MS, onlyJob, openBench, put, putMany, take, takeOne } from "./jobs.ts";

const DAY_MS = 86_400_000;

/** Which jobs a claim gives, and how often. */
export function claimingContract(backend: Backend): void {
  describe("a claim", () => {
    test("gives what was put, under a lease of the length that was asked for", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const id = await put(storage, "payload", { jobId: "job" });
      const delivery = await takeOne(storage, 12_345);
      const row = await onlyJob(bench);
      expect(delivery).toEqual({
        id,
        receipt: row.receipt,
        payload: new TextEncoder().encode("payload"),
        attempt: 1,
        jobId: "job",
        leaseUntil: row.leaseUntil,
        enqueuedAt: row.createdAt,
      });
      expect(row.leaseUntil).toBe(row.updatedAt + 12_345);
      expect(row.receipt).toMatch(/\S{16}/);
    });

    test("gives nothing when there is nothing", async () => {
      const bench = await openBench(backend);
      await put(bench.storage("other"));
      expect(await take(bench.storage())).toEqual([]);
    });

    test("takes the lowest ids first, so many as it may", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const ids = await putMany(storage, 5);
      expect(idsOf(await take(storage, 3))).toEqual(ids.slice(0, 3));
      expect(idsOf(await take(storage, 3))).toEqual(ids.slice(3));
      expect(await take(storage, 3)).toEqual([]);
      await expectRightCounts(bench, storage, "default");
    });

    test("takes hundreds at once, each under a receipt of its own", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const ids = await putMany(storage, 350);
      const claimed = await take(storage, 320);
      expect(idsOf(claimed)).toEqual(ids.slice(0, 320));
      expect(new Set(claimed.map(({ receipt }) => receipt)).size).toBe(320);
      await expectRightCounts(bench, storage, "default");
    });

    test("takes an older job that became ready again before younger ones", async () => {
      const storage = (await openBench(backend)).storage();
      const ids = await putMany(storage, 3);
      const first = await takeOne(storage);
      await storage.settle(first, nack(0));
      expect(idsOf(await take(storage, 3))).toEqual(ids);
    });

    test("does not take a delayed job before its time", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const early = await put(storage, "delayed", { delayMs: 60_000 });
      const late = await put(storage);
      expect(idsOf(await take(storage, 2, DAY_MS))).toEqual([late]);
      await bench.age(55_000);
      expect(await take(storage, 2)).toEqual([]);
      await bench.age(5_000);
      expect(idsOf(await take(storage, 2))).toEqual([early]);
    });

    test("takes a nacked job when its delay is over", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const id = await put(storage);
      await storage.settle(await takeOne(storage), nack(30_000));
      await bench.age(25_000);
      expect(await take(storage)).toEqual([]);
      await bench.age(5_000);
      expect(await take(storage)).toMatchObject([{ id, attempt: 2 }]);
    });

    test("takes jobs whose time has come in the order of their ids, though later ones were due earlier", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const ids: number[] = [];
      for (const delayMs of [3000, 1000, 2000, 0]) ids.push(await put(storage, "payload", { delayMs }));
      await bench.age(4000);
      expect(idsOf(await take(storage, 4))).toEqual(ids);
    });

    test("finds every one of thousands of jobs that became due at once", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const ids = await putMany(storage, 2000, { delayMs: 1000 });
      await bench.age(1000);
      const found: number[] = [];
      for (let some = await take(storage, 500); some.length > 0; some = await take(storage, 500)) {
        found.push(...idsOf(some));
      }
      expect(found.sort((a, b) => a - b)).toEqual(ids);
    });

    test("never takes a job that somebody holds", async () => {
      const storage = (await openBench(backend)).storage();
      await put(storage);
      await takeOne(storage);
      expect(await take(storage)).toEqual([]);
    });

    test("takes a job whose lease ran out, by itself", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const id = await put(storage);
      await takeOne(storage);
      await bench.age(LEASE_MS);
      expect(await take(storage)).toMatchObject([{ id, attempt: 2 }]);
      await expectRightCounts(bench, storage, "default");
    });

    test("at the same time as others never takes what they took", async () => {
      const bench = await openBench(backend);
      const storages = [bench.storage(), bench.storage(), bench.storage()];
      const ids = await putMany(storages[0] as Storage, 60);
      const claims = await Promise.all(Array.from({ length: 30 }, (_, i) => take(storages[i % 3] as Storage, 3)));
      expect(idsOf(claims.flat()).sort((a, b) => a - b)).toEqual(ids);
    });
  });

  describe("reclaim", () => {
    test("ends every lease that ran out, and only those, and says how many", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await putMany(storage, 260);
      await take(storage, 250, 1000);
      const held = await take(storage, 10, LEASE_MS);
      await put(bench.storage("other"));
      await take(bench.storage("other"), 1, 1000);
      expect(await storage.reclaim()).toBe(0);
      await bench.age(1000);
      expect(await storage.reclaim()).toBe(250);
      expect(await storage.reclaim()).toBe(0);
      const left = (await bench.jobs()).filter(({ state }) => state === "processing");
      expect(left.map(({ queue }) => queue)).toEqual([...held.map(() => "default"), "other"]);
      await expectRightCounts(bench, storage, "default");
    });
  });

  describe("the budget", () => {
    test("counts deliveries, however they end, and the last one that ends badly makes a dead letter", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage, "payload", { maxAttempts: 3 });
      await storage.settle(await takeOne(storage), { ...nack(0), lastError: "Error: first" });
      await takeOne(storage);
      await bench.age(LEASE_MS);
      const last = await takeOne(storage);
      expect(last.attempt).toBe(3);
      expect(await storage.settle(last, { ...nack(0), exhaustedReason: "handler_timeout" })).toBe("failed");
      expect(await onlyJob(bench)).toMatchObject({ state: "failed", attempts: 3, failureReason: "handler_timeout" });
      expect(await take(storage)).toEqual([]);
    });

    const enders: { readonly [how: string]: (storage: Storage) => Promise<unknown> } = {
      "a reclaim": (storage) => storage.reclaim(),
      "a claim": (storage) => take(storage),
    };
    test.each(Object.entries(enders))(
      "is spent when the last lease runs out: %s makes a dead letter",
      async (_, end) => {
        const bench = await openBench(backend);
        const storage = bench.storage();
        await put(storage, "payload", { maxAttempts: 2 });
        await storage.settle(await takeOne(storage), { ...nack(0), lastError: "Error: first" });
        await takeOne(storage);
        await bench.age(LEASE_MS);
        await end(storage);
        expect(await onlyJob(bench)).toMatchObject({
          state: "failed",
          attempts: 2,
          failureReason: "retries_exhausted",
          lastError: "Error: first",
          receipt: null,
          leaseUntil: null,
        });
        expect(await take(storage)).toEqual([]);
        await expectRightCounts(bench, storage, "default");
      },
    );

    test("is not touched by deliveries that were given back, up to ten times in a row", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage, "payload", { maxAttempts: 2 });
      for (let release = 0; release < MAX_RELEASES; release++) expect(await giveBack(storage)).toEqual([1, "ready"]);
      expect(await onlyJob(bench)).toMatchObject({ attempts: 0, releases: MAX_RELEASES });
      expect(await giveBack(storage)).toEqual([1, "ready"]);
      expect(await giveBack(storage)).toEqual([2, "failed"]);
      expect(await onlyJob(bench)).toMatchObject({ attempts: 2, failureReason: "retries_exhausted" });
    });

    test.each(["a nack", "an expired lease"])("allows ten more releases after %s", async (how) => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage, "payload", { maxAttempts: 3 });
      for (let release = 0; release < MAX_RELEASES; release++) await giveBack(storage);
      const delivery = await takeOne(storage);
      if (how === "a nack") await storage.settle(delivery, nack(0));
      else await bench.age(LEASE_MS);
      for (let release = 0; release < MAX_RELEASES; release++) expect(await giveBack(storage)).toEqual([2, "ready"]);
      expect(await giveBack(storage)).toEqual([2, "ready"]);
      expect(await giveBack(storage)).toEqual([3, "failed"]);
    });
  });

  describe("a consumer's own budget", () => {
    test("replaces that of the jobs that it claims", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage, "payload", { maxAttempts: 1 });
      const consumer = consume(storage, 3);
      for (const attempt of [1, 2]) {
        const delivery = (await consumer.claim(0, { waitMs: 0 })) as Delivery;
        expect(delivery.attempt).toBe(attempt);
        expect(await onlyJob(bench)).toMatchObject({ maxAttempts: 3 });
        expect(await storage.settle(delivery, nack(0))).toBe("ready");
      }
      expect(await storage.settle((await consumer.claim(0, { waitMs: 0 })) as Delivery, nack(0))).toBe("failed");
    });

    test("fails jobs that have used it up, without delivering them, and goes on to the next", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const ids = await putMany(storage, 150, { maxAttempts: 4 });
      for (const delivery of await take(storage, 150)) await storage.settle(delivery, nack(0));
      const fresh = await put(storage);
      const delivery = await consume(storage, 1).claim(0, { waitMs: 0 });
      expect(delivery).toMatchObject({ id: fresh, attempt: 1 });
      const jobs = (await bench.jobs()).filter(({ id }) => ids.includes(id));
      expect(
        new Set(
          jobs.map(({ state, failureReason, maxAttempts, attempts }) =>
            [state, failureReason, maxAttempts, attempts].join(),
          ),
        ),
      ).toEqual(new Set(["failed,retries_exhausted,1,1"]));
      await expectRightCounts(bench, storage, "default");
    });

    test("is kept for every job when many slots claim among mixed jobs", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      // In this order: 60 that were delivered once, 40 new ones, and the same again.
      const ids = await putMany(storage, 200);
      const fresh = ids.filter((_, index) => index % 100 >= 60);
      for (const id of ids) if (!fresh.includes(id)) await bench.edit(id, { attempts: 1 });
      const consumer = consume(storage, 1, 80);
      const claims = Array.from({ length: 80 }, (_, slot) =>
        consumer.claim(slot, { waitMs: Number.POSITIVE_INFINITY }),
      );
      const deliveries = await Promise.all(claims);
      expect(deliveries.filter((delivery) => delivery?.attempt !== 1)).toEqual([]);
      expect(deliveries.map((delivery) => delivery?.id)).toEqual(fresh);
      await expectRightCounts(bench, storage, "default");
    });

    test("decides about expired leases, too", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await putMany(storage, 2, { maxAttempts: 4 });
      await take(storage, 2);
      await bench.age(LEASE_MS);
      expect(await consume(storage, 1).claim(0, { waitMs: 0 })).toBeUndefined();
      expect((await bench.jobs()).map(({ state, maxAttempts }) => [state, maxAttempts])).toEqual([
        ["failed", 1],
        ["failed", 1],
      ]);
      await expectRightCounts(bench, storage, "default");
    });

    test("is not needed: without one, each job has the budget it was put with", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage, "payload", { maxAttempts: 2 });
      const consumer = consume(storage, undefined);
      await storage.settle((await consumer.claim(0, { waitMs: 0 })) as Delivery, nack(0));
      await storage.settle((await consumer.claim(0, { waitMs: 0 })) as Delivery, nack(0));
      expect(await onlyJob(bench)).toMatchObject({ state: "failed", maxAttempts: 2 });
    });
  });

  describe("the statistics", () => {
    test("tell how many jobs are in which state, delayed ones among the ready, of this queue alone", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      expect(await storage.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 0 });
      await putMany(storage, 6);
      await put(storage, "later", { delayMs: 60_000 });
      await put(bench.storage("other"));
      const [first, second, third] = (await take(storage, 4)) as [Delivery, Delivery, Delivery];
      await storage.settle(first, { event: "ack" });
      await storage.settle(second, { event: "ack" });
      await storage.settle(third, { event: "fail", lastError: undefined, reason: "rejected", category: undefined });
      expect(await storage.stats()).toEqual({ ready: 3, processing: 1, acked: 2, failed: 1 });
      expect(await bench.storage("other").stats()).toEqual({ ready: 1, processing: 0, acked: 0, failed: 0 });
    });
  });
}

function nack(delayMs: number): {
  event: "nack";
  delayMs: number;
  lastError: undefined;
  exhaustedReason: "retries_exhausted";
} {
  return { event: "nack", delayMs, lastError: undefined, exhaustedReason: "retries_exhausted" };
}

/** Claims the only ready job and gives it back; what number the delivery had, and where it led. */
async function giveBack(storage: Storage): Promise<[attempt: number, state: string]> {
  const delivery = await takeOne(storage);
  return [delivery.attempt, await storage.settle(delivery, { event: "release" })];
}

function idsOf(deliveries: readonly Delivery[]): number[] {
  return deliveries.map(({ id }) => id);
}

/** A consumer that renews nothing; closed with its storage. */
function consume(storage: Storage, maxAttempts: number | undefined, slots = 1): Consumer {
  const settings: ConsumerSettings = {
    slots,
    leaseMs: LEASE_MS,
    heartbeatMs: false,
    timeoutMs: undefined,
    graceMs: 0,
    maxAttempts,
  };
  const nothing = (): void => undefined;
  return storage.consume(settings, { leaseLost: nothing, leaseRenewed: nothing, timedOut: nothing, overdue: nothing });
}
