import { describe, expect, test } from "vitest";
import { NotFoundError, QueueClosedError } from "../../dist/errors.js";
import type { Storage } from "../../dist/storage/storage.js";
import type { Backend, Bench } from "../support/backend.ts";
import { expectRightCounts, openBench, put, putMany, shareBench, take, takeOne } from "./jobs.ts";

const DAY = 86_400_000;

interface Cause {
  readonly reason: "rejected" | "permanent_handler_error";
  readonly category: string | undefined;
}

const REJECTED: Cause = { reason: "rejected", category: "invoice" };
const PERMANENT: Cause = { reason: "permanent_handler_error", category: undefined };

/** Puts a job that becomes a dead letter; returns its id. */
async function bury(storage: Storage, { reason, category }: Cause = REJECTED): Promise<number> {
  await put(storage);
  const lease = await takeOne(storage);
  await storage.settle(lease, { event: "fail", lastError: "Error: no", reason, category });
  return lease.id;
}

/** Puts a job that is done; returns its id. */
async function finish(storage: Storage): Promise<number> {
  await put(storage);
  const lease = await takeOne(storage);
  await storage.settle(lease, { event: "ack" });
  return lease.id;
}

/** One job in each state, and a delayed one. */
async function one(storage: Storage): Promise<{ [state: string]: number }> {
  const acked = await finish(storage);
  const failed = await bury(storage);
  await put(storage);
  const processing = (await takeOne(storage)).id;
  const ready = await put(storage);
  const delayed = await put(storage, "later", { delayMs: DAY });
  return { acked, failed, processing, ready, delayed };
}

async function idsOf(bench: Bench, queue?: string): Promise<number[]> {
  return (await bench.jobs(queue)).map(({ id }) => id);
}

/** What takes jobs away, or brings them back, by their id or many at a time. */
export function removingContract(backend: Backend): void {
  const shared = shareBench(backend);
  let queues = 0;

  /** A queue of the test's own, in which the counts must be right in the end. */
  async function within(work: (storage: Storage, bench: Bench, queue: string) => Promise<void>): Promise<void> {
    const queue = `removing ${++queues}`;
    const storage = shared().storage(queue);
    await work(storage, shared(), queue);
    await expectRightCounts(shared(), storage, queue);
  }

  describe("removing a job", () => {
    test.each(["ready", "delayed"])("that is %s deletes it, and nothing else", () =>
      within(async (storage, bench, queue) => {
        const { ready = 0, ...others } = await one(storage);
        expect(await storage.remove(ready)).toBe(true);
        expect(await idsOf(bench, queue)).toEqual(Object.values(others).sort((a, b) => a - b));
        expect(await storage.remove(ready)).toBe(false);
      }),
    );

    test.each(["processing", "acked", "failed"])("that is %s is refused", (state) =>
      within(async (storage, bench, queue) => {
        const { [state]: id = 0 } = await one(storage);
        const before = await bench.jobs(queue);
        expect(await storage.remove(id)).toBe(false);
        expect(await bench.jobs(queue)).toEqual(before);
      }),
    );

    test("of another queue, or one that never was, is refused", () =>
      within(async (storage, bench) => {
        const id = await put(bench.storage("another one"));
        expect(await storage.remove(id)).toBe(false);
        expect(await storage.remove(id + 1_000_000)).toBe(false);
        expect(await idsOf(bench, "another one")).toContain(id);
      }));

    test("makes room for a put that waits for it", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("default", { maxPendingJobs: 1 });
      const id = await put(storage);
      const waiting = put(storage, "next");
      expect(await bench.storage().remove(id)).toBe(true);
      expect(await waiting).toBe(id + 1);
    });

    test("makes its jobId free again", () =>
      within(async (storage) => {
        const id = await put(storage, "one", { jobId: "mine" });
        expect(await storage.remove(id)).toBe(true);
        expect(await put(storage, "two", { jobId: "mine" })).toBeGreaterThan(id);
      }));
  });

  describe("replaying dead letters", () => {
    test("keeps what they are, and lets them be delivered as often as at first", () =>
      within(async (storage, bench, queue) => {
        await put(storage, "payload", { jobId: "mine", maxAttempts: 1 });
        const { id, payload, enqueuedAt } = await takeOne(storage);
        const lease = (await bench.jobs(queue))[0];
        await storage.settle(
          { id, receipt: lease?.receipt ?? "" },
          { event: "nack", delayMs: 0, lastError: "no", exhaustedReason: "retries_exhausted" },
        );
        expect(await storage.retryFailed({ id })).toBe(1);
        expect(await takeOne(storage)).toMatchObject({ id, payload, enqueuedAt, attempt: 1, jobId: "mine" });
      }));

    test("by the id of one that is none is NOT_FOUND and changes nothing", () =>
      within(async (storage, bench, queue) => {
        const { failed = 0, ...others } = await one(storage);
        const foreign = await bury(bench.storage("of others"));
        const before = await bench.jobs(queue);
        for (const id of [...Object.values(others), foreign, failed + 1_000_000]) {
          await expect(storage.retryFailed({ id })).rejects.toBeInstanceOf(NotFoundError);
          await expect(storage.purgeFailed({ id })).rejects.toBeInstanceOf(NotFoundError);
        }
        expect(await bench.jobs(queue)).toEqual(before);
      }));

    test("by the same id from two sides succeeds once", () =>
      within(async (storage, bench, queue) => {
        const id = await bury(storage);
        const tries = [storage, bench.storage(queue)].map((each) => each.retryFailed({ id }));
        const outcomes = await Promise.allSettled(tries);
        expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
      }));

    test.each([
      { filter: {}, chosen: [0, 1, 2] },
      { filter: { reason: "rejected" }, chosen: [0, 1] },
      { filter: { category: "invoice" }, chosen: [0] },
      { filter: { reason: "rejected", category: "other" }, chosen: [1] },
      { filter: { reason: "permanent_handler_error", category: "invoice" }, chosen: [] },
      { filter: { reason: "legacy_unknown" }, chosen: [] },
    ] as const)("by the filter $filter brings back those of the cause", ({ filter, chosen }) =>
      within(async (storage) => {
        const ids = [await bury(storage), await bury(storage, { ...REJECTED, category: "other" })];
        ids.push(await bury(storage, PERMANENT));
        await finish(storage);
        await bury(shared().storage("of others"));
        expect(await storage.retryFailed(filter)).toBe(chosen.length);
        expect((await take(storage, 10)).map(({ id }) => id)).toEqual(chosen.map((index) => ids[index]));
      }),
    );

    test("wakes who waits for a job", () =>
      within(async (storage) => {
        const [one, other] = [await bury(storage), await bury(storage)];
        const waiting = [0, 1].map(() => storage.claim({ limit: 1, leaseMs: 60_000, timeoutMs: 10_000 }));
        await storage.retryFailed({ id: other });
        await storage.retryFailed({});
        const claimed = (await Promise.all(waiting)).flat();
        expect(claimed.map(({ id }) => id).sort()).toEqual([one, other].sort());
      }));
  });

  describe("purging dead letters", () => {
    test("deletes one by its id", () =>
      within(async (storage, bench, queue) => {
        const { failed = 0, ...others } = await one(storage);
        expect(await storage.purgeFailed({ id: failed })).toBe(1);
        expect(await idsOf(bench, queue)).toEqual(Object.values(others).sort((a, b) => a - b));
      }));

    test("deletes those of a filter, and nothing else", () =>
      within(async (storage, bench, queue) => {
        await one(storage);
        await bury(storage, PERMANENT);
        const gone = await bury(storage, { ...REJECTED, category: "other" });
        const before = await idsOf(bench, queue);
        expect(await storage.purgeFailed({ category: "other" })).toBe(1);
        expect(await idsOf(bench, queue)).toEqual(before.filter((id) => id !== gone));
        expect(await storage.purgeFailed({})).toBe(2);
      }));
  });

  describe("a purge", () => {
    test("deletes what was acknowledged before the cut-off, and nothing else", () =>
      within(async (storage, bench, queue) => {
        const { acked } = await one(storage);
        await bench.age(2 * DAY);
        await finish(storage);
        const before = await idsOf(bench, queue);
        expect(await storage.purge({ olderThanMs: 3 * DAY, includeFailed: true })).toBe(0);
        expect(await storage.purge({ olderThanMs: DAY, includeFailed: false })).toBe(1);
        expect(await idsOf(bench, queue)).toEqual(before.filter((id) => id !== acked));
      }));

    test("deletes old dead letters, too, if so asked, and counts both", () =>
      within(async (storage, bench, queue) => {
        const { acked, failed } = await one(storage);
        await bench.age(2 * DAY);
        await bury(storage);
        const before = await idsOf(bench, queue);
        expect(await storage.purge({ olderThanMs: DAY, includeFailed: true })).toBe(2);
        expect(await idsOf(bench, queue)).toEqual(before.filter((id) => id !== acked && id !== failed));
      }));

    test("leaves other queues alone", () =>
      within(async (storage, bench) => {
        await finish(bench.storage("of others"));
        await bury(bench.storage("of others"));
        await bench.age(2 * DAY);
        const before = await bench.jobs("of others");
        expect(await storage.purge({ olderThanMs: DAY, includeFailed: true })).toBe(0);
        expect(await bench.jobs("of others")).toEqual(before);
      }));

    test("of many rows deletes each of them once", () =>
      within(async (storage, bench, queue) => {
        await putMany(storage, 5_000);
        const leases = await take(storage, 5_000);
        await Promise.all(leases.map((lease) => storage.settle(lease, { event: "ack" })));
        const kept = await putMany(storage, 10);
        await bench.age(1000);
        const counts = await Promise.all([0, 1].map(() => storage.purge({ olderThanMs: 500, includeFailed: true })));
        expect((counts[0] ?? 0) + (counts[1] ?? 0)).toBe(5_000);
        expect(await idsOf(bench, queue)).toEqual(kept);
      }));

    test("ends when the storage is closed, and what it did until then is done", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      for (let i = 0; i < 4; i++) await putMany(storage, 10_000);
      await bench.age(1000);
      const purging = Promise.all([
        expect(storage.retryFailed({})).resolves.toBe(0),
        expect(storage.purge({ olderThanMs: 0, includeFailed: true })).rejects.toBeInstanceOf(QueueClosedError),
      ]);
      await storage.stats();
      await storage.close();
      await purging;
      expect(await bench.jobs()).toHaveLength(40_000);
      await expect(storage.purge({ olderThanMs: 0, includeFailed: true })).rejects.toBeInstanceOf(QueueClosedError);
    });
  });
}
