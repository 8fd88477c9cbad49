import { describe, expect, test } from "vitest";
import { MAX_RELEASES } from "../../dist/state.js";
import type { ReleaseBackoff } from "../../dist/storage/storage.js";
import type { Backend } from "../support/backend.ts";
import { expectRightCounts, LEASE_MS, onlyJob, openBench, put, takeOne } from "./jobs.ts";

const BACKOFF: ReleaseBackoff = {
  initialMs: 1000,
  maxMs: 60_000,
  lastError: "nobody handles this",
  exhaustedReason: "no_handler",
};

/** Jobs that are given back for a while. */
export function releasingContract(backend: Backend): void {
  describe("a release with a backoff", () => {
    test("makes the job wait, twice as long with each in a row, but no longer than allowed", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage, "payload", { maxAttempts: MAX_RELEASES });
      const delays: number[] = [];
      for (let release = 0; release < MAX_RELEASES + 3; release++) {
        expect(await storage.settle(await takeOne(storage), { event: "release", backoff: BACKOFF })).toBe("ready");
        const { availableAt, updatedAt, lastError, failureReason } = await onlyJob(bench);
        expect({ lastError, failureReason }).toEqual({ lastError: BACKOFF.lastError, failureReason: null });
        delays.push((availableAt - updatedAt) / 1000);
        expect(await storage.stats()).toMatchObject({ ready: 1, processing: 0 });
        await bench.age(availableAt - updatedAt);
      }
      expect(delays).toEqual([1, 2, 4, 8, 16, 32, ...Array.from({ length: MAX_RELEASES - 3 }, () => 60)]);
      // Only those beyond the limit were deliveries that count.
      expect(await onlyJob(bench)).toMatchObject({ attempts: 3, releases: MAX_RELEASES });
    });

    test("begins anew after a delivery that was not given back", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage);
      for (let release = 0; release < 3; release++) {
        await storage.settle(await takeOne(storage), { event: "release", backoff: { ...BACKOFF, initialMs: 0 } });
      }
      const lastTry = { lastError: "other", delayMs: 0, exhaustedReason: "rejected" } as const;
      await storage.settle(await takeOne(storage), { event: "nack", ...lastTry });
      await storage.settle(await takeOne(storage), { event: "release", backoff: BACKOFF });
      const { availableAt, updatedAt } = await onlyJob(bench);
      expect(availableAt - updatedAt).toBe(1000);
    });

    test("too often, with no deliveries left, makes a dead letter that says why", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      const id = await put(storage, "payload", { maxAttempts: 1 });
      const delivery = await takeOne(storage);
      await bench.edit(id, { releases: MAX_RELEASES });
      expect(await storage.settle(delivery, { event: "release", backoff: BACKOFF })).toBe("failed");
      const { availableAt, updatedAt, ...job } = await onlyJob(bench);
      expect(availableAt).toBe(updatedAt);
      expect(job).toMatchObject({ state: "failed", lastError: BACKOFF.lastError, failureReason: "no_handler" });
      expect(job).toMatchObject({ attempts: 1, leaseUntil: null, receipt: null });
      await expectRightCounts(bench, storage, "q");
    });

    test("delivers the job to whoever waits once it is due, not before", async () => {
      const storage = (await openBench(backend)).storage();
      await put(storage);
      const delivery = await takeOne(storage);
      const waiting = storage.claim({ limit: 1, leaseMs: LEASE_MS });
      const askedAt = Date.now();
      await storage.settle(delivery, { event: "release", backoff: { ...BACKOFF, initialMs: 100 } });
      const [again] = await waiting;
      expect(Date.now() - askedAt).toBeGreaterThanOrEqual(99);
      expect(again).toMatchObject({ id: delivery.id, attempt: 1 });
    });

    test("without one leaves the last error, and the job is ready at once", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage);
      await storage.settle(await takeOne(storage), { event: "release", backoff: { ...BACKOFF, initialMs: 0 } });
      await storage.settle(await takeOne(storage), { event: "release" });
      const { availableAt, updatedAt, lastError, releases } = await onlyJob(bench);
      expect({ delayMs: availableAt - updatedAt, lastError, releases }).toEqual({
        delayMs: 0,
        lastError: BACKOFF.lastError,
        releases: 2,
      });
    });
  });
}
