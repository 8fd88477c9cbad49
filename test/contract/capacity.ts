import { describe, expect, test } from "vitest";
import { FullError, QueueClosedError, StorageError } from "../../dist/errors.js";
import type { Entry, Storage } from "../../dist/storage/storage.js";
import type { Backend, Bench } from "../support/backend.ts";
import { entry, expectRightCounts, LEASE_MS, openBench, PATIENT, put, putMany, take, takeOne } from "./jobs.ts";

const DAY_MS = 86_400_000;
const AT_ONCE = { timeoutMs: 0 };

/** What a bound on ready and processing jobs counts, and how puts wait for room. */
export function capacityContract(backend: Backend): void {
  const open = async (limit: number): Promise<{ bench: Bench; storage: Storage }> => {
    const bench = await openBench(backend);
    return { bench, storage: bench.storage("default", { maxPendingJobs: limit }) };
  };
  const openFull = async (limit = 1): Promise<{ bench: Bench; storage: Storage; ids: number[] }> => {
    const { bench, storage } = await open(limit);
    return { bench, storage, ids: await putMany(storage, limit) };
  };

  describe("a storage with a limit", () => {
    test("takes as many jobs as that, and refuses the next without a trace", async () => {
      const { bench, storage, ids } = await openFull(3);
      await expectFull(storage.put([entry("4")], AT_ONCE));
      expect((await bench.jobs()).map(({ id }) => id)).toEqual(ids);
      await expectRightCounts(bench, storage, "default");
      // No id was consumed.
      await storage.settle(await takeOne(storage), { event: "ack" });
      expect(await put(storage)).toBe((ids.at(-1) ?? 0) + 1);
    });

    test("takes all of a batch or nothing, and the refused batch consumes no id", async () => {
      const { bench, storage } = await open(3);
      const [first = 0] = await putMany(storage, 1);
      await expectFull(storage.put([entry("2"), entry("3", { jobId: "a" }), entry("4")], AT_ONCE));
      await expectRightCounts(bench, storage, "default");
      expect(await storage.put([entry("2"), entry("3", { jobId: "a" })], AT_ONCE)).toEqual([
        { id: first + 1, inserted: true },
        { id: first + 2, inserted: true },
      ]);
      await expectFull(storage.put([entry("4")], AT_ONCE));
      expect((await bench.jobs()).map(({ payload }) => payload)).toEqual(["payload 0", "2", "3"]);
    });

    test("lets in exactly as many of those that come at the same time, the first", async () => {
      const { bench, storage } = await open(25);
      const puts = Array.from({ length: 60 }, (_, index) => storage.put([entry(`${index}`)], AT_ONCE));
      const outcomes = await Promise.allSettled(puts);
      expect(outcomes.map(({ status }) => status === "fulfilled")).toEqual(outcomes.map((_, index) => index < 25));
      expect((await bench.jobs()).map(({ payload }) => payload)).toEqual(
        Array.from({ length: 25 }, (_, index) => `${index}`),
      );
      await expectRightCounts(bench, storage, "default");
    });

    test("counts delayed jobs", async () => {
      const { storage } = await open(1);
      await put(storage, "later", { delayMs: DAY_MS });
      await expectFull(storage.put([entry("2")], AT_ONCE));
    });

    test("counts the jobs of its own queue only", async () => {
      const { bench, storage } = await openFull(2);
      const other = bench.storage("other", { maxPendingJobs: 2 });
      await putMany(other, 2);
      await expectFull(other.put([entry("3")], AT_ONCE));
      await expectFull(storage.put([entry("3")], AT_ONCE));
    });

    test("is its own affair: a storage without one puts on, and one with a higher one, too", async () => {
      const { bench, storage } = await openFull(1);
      await put(bench.storage());
      const higher = bench.storage("default", { maxPendingJobs: 3 });
      await put(higher);
      await expectFull(higher.put([entry("4")], AT_ONCE));
      await expectFull(storage.put([entry("4")], AT_ONCE));
    });

    test("that is below what is there already takes nothing but known jobs until enough is done", async () => {
      const bench = await openBench(backend);
      const ids = await putMany(bench.storage(), 2);
      ids.push(await put(bench.storage(), "3", { jobId: "known" }));
      const storage = bench.storage("default", { maxPendingJobs: 2 });
      await expectFull(storage.put([entry("4")], AT_ONCE));
      expect(await storage.put([entry("4", { jobId: "known" })], AT_ONCE)).toEqual([{ id: ids[2], inserted: false }]);
      for (const delivery of await take(storage, 2)) await storage.settle(delivery, { event: "ack" });
      await put(storage);
      await expectFull(storage.put([entry("5")], AT_ONCE));
    });

    test("takes an empty batch when it is full", async () => {
      const { storage } = await openFull();
      expect(await storage.put([], AT_ONCE)).toEqual([]);
    });
  });

  describe("room for a put", () => {
    /** What is done to the one job of a full queue, and whether there is room afterwards. */
    const events: readonly (readonly [string, boolean, (storage: Storage, bench: Bench) => Promise<unknown>])[] = [
      ["is claimed", false, (storage) => takeOne(storage)],
      ["is acknowledged", true, async (storage) => storage.settle(await takeOne(storage), { event: "ack" })],
      ["fails", true, async (storage) => storage.settle(await takeOne(storage), FAIL)],
      ["is nacked", false, async (storage) => storage.settle(await takeOne(storage), NACK)],
      [
        "is nacked after its last delivery",
        true,
        async (storage, bench) => {
          await setBudget(bench, 1);
          await storage.settle(await takeOne(storage), NACK);
        },
      ],
      ["is released", false, async (storage) => storage.settle(await takeOne(storage), { event: "release" })],
      [
        "has an expired lease",
        false,
        async (storage, bench) => {
          await takeOne(storage);
          await bench.age(LEASE_MS);
        },
      ],
      [
        "is reclaimed and ready again",
        false,
        async (storage, bench) => {
          await takeOne(storage);
          await bench.age(LEASE_MS);
          expect(await storage.reclaim()).toBe(1);
        },
      ],
      [
        "is reclaimed after its last delivery",
        true,
        async (storage, bench) => {
          await setBudget(bench, 1);
          await takeOne(storage);
          await bench.age(LEASE_MS);
          expect(await storage.reclaim()).toBe(1);
        },
      ],
    ];

    test.each(events)("when a job %s: %s", async (_, room, happen) => {
      const { bench, storage } = await openFull();
      await happen(storage, bench);
      if (room) await storage.put([entry("2")], AT_ONCE);
      else await expectFull(storage.put([entry("2")], AT_ONCE));
      await expectRightCounts(bench, storage, "default");
    });

    test.each(events.filter(([, room]) => room))("comes to one that waits when a job %s", async (_, __, happen) => {
      const { bench, storage } = await openFull();
      const waiting = put(storage, "2");
      await storage.stats();
      await happen(storage, bench);
      const id = await waiting;
      expect((await bench.jobs()).map((job) => job.id)).toContain(id);
      await expectRightCounts(bench, storage, "default");
    });

    test("comes to one that waits when another storage frees it", async () => {
      const { bench, storage } = await openFull();
      const waiting = put(storage, "2");
      await storage.stats();
      const other = bench.storage();
      await other.settle(await takeOne(other), { event: "ack" });
      await waiting;
    });
  });

  describe("a known job", () => {
    const known = { jobId: "job" };
    const histories: { readonly [state: string]: (storage: Storage) => Promise<unknown> } = {
      ready: async () => undefined,
      processing: (storage) => takeOne(storage),
      acked: async (storage) => storage.settle(await takeOne(storage), { event: "ack" }),
      failed: async (storage) => storage.settle(await takeOne(storage), FAIL),
    };

    test.each(Object.entries(histories))("that is %s takes no room in a full queue", async (_, happen) => {
      const { bench, storage } = await open(1);
      const id = await put(storage, "1", known);
      await happen(storage);
      const filler = bench.storage();
      while ((await storage.stats()).ready + (await storage.stats()).processing < 1) await put(filler);
      await expectFull(storage.put([entry("2")], AT_ONCE));
      expect(await storage.put([entry("2", known), entry("3", known)], AT_ONCE)).toEqual([
        { id, inserted: false },
        { id, inserted: false },
      ]);
      await expectRightCounts(bench, storage, "default");
    });

    test("that is delayed takes no room", async () => {
      const { storage } = await open(1);
      const id = await put(storage, "1", { ...known, delayMs: DAY_MS });
      expect(await storage.put([entry("2", known)], AT_ONCE)).toEqual([{ id, inserted: false }]);
    });

    test("takes no room in a batch, and one that occurs twice takes one place", async () => {
      const { storage } = await open(3);
      const id = await put(storage, "1", known);
      const twin = { jobId: "twin" };
      const mixed = [entry("1", known), entry("2", twin), entry("3"), entry("4", twin)];
      const [again, one, two, same] = await storage.put(mixed, AT_ONCE);
      expect(again).toEqual({ id, inserted: false });
      expect([one?.inserted, two?.inserted]).toEqual([true, true]);
      expect(same).toEqual({ id: one?.id, inserted: false });
      await expectFull(storage.put([entry("5")], AT_ONCE));
    });

    test("need not wait behind others", async () => {
      const { storage } = await open(1);
      const id = await put(storage, "1", known);
      const waiting = outcomeOf(put(storage, "2"));
      await storage.stats();
      expect(await storage.put([entry("3", known)], PATIENT)).toEqual([{ id, inserted: false }]);
      await storage.close();
      expect(await waiting).toBeInstanceOf(QueueClosedError);
    });

    test("that became known while its put waited is no longer waited for", async () => {
      const { bench, storage } = await openFull();
      const waiting = [1, 2, 3].map((n) => storage.put([entry(`${n}`, known)], PATIENT));
      await storage.stats();
      const id = await put(bench.storage(), "0", known);
      expect((await Promise.all(waiting)).flat()).toEqual(Array(3).fill({ id, inserted: false }));
    });
  });

  describe("a batch with more new jobs than the limit", () => {
    test.each([undefined, 0, 60_000])("is refused at once, with a time-out of %s", async (timeoutMs) => {
      const { bench, storage } = await open(2);
      const startedAt = performance.now();
      await expectFull(storage.put([entry("1"), entry("2"), entry("3")], { timeoutMs }));
      expect(performance.now() - startedAt).toBeLessThan(5000);
      expect(await bench.jobs()).toEqual([]);
      expect(await put(storage)).toBe(1);
    });

    test("is refused at once although others wait", async () => {
      const { storage } = await openFull(2);
      const waiting = outcomeOf(put(storage));
      await expectFull(storage.put([entry("1"), entry("2"), entry("3")], PATIENT));
      await storage.close();
      expect(await waiting).toBeInstanceOf(QueueClosedError);
    });

    test("is accepted if enough of them are known", async () => {
      const { storage } = await open(2);
      const known = ["a", "b", "a", "b", "b"].map((jobId) => entry("x", { jobId }));
      const first = await storage.put(known, AT_ONCE);
      expect(first.map(({ inserted }) => inserted)).toEqual([true, true, false, false, false]);
      for (const delivery of await take(storage, 2)) await storage.settle(delivery, { event: "ack" });
      const more = await storage.put([...known, entry("y"), entry("z")], AT_ONCE);
      expect(more.filter(({ inserted }) => inserted)).toHaveLength(2);
    });
  });

  describe("a put that waits for room", () => {
    test("is refused when its time is up, and not done later", async () => {
      const { bench, storage } = await openFull();
      const startedAt = performance.now();
      await expectFull(storage.put([entry("2")], { timeoutMs: 120 }));
      expect(performance.now() - startedAt).toBeGreaterThanOrEqual(119);
      expect(performance.now() - startedAt).toBeLessThan(3000);
      await storage.settle(await takeOne(storage), { event: "ack" });
      expect((await bench.jobs()).map(({ state }) => state)).toEqual(["acked"]);
    });

    test("lets other calls of its storage go on", async () => {
      const { bench, storage } = await openFull();
      const waiting = Array.from({ length: 2500 }, (_, index) => put(storage, `${index}`));
      const other = bench.storage("other");
      await putMany(other, 2);
      for (const delivery of await take(other, 2)) await other.settle(delivery, { event: "ack" });
      await expectRightCounts(bench, storage, "default");
      const ended = Promise.all(waiting.map(outcomeOf));
      await storage.close();
      expect(new Set((await ended).map((error) => (error as Error).name))).toEqual(new Set(["QueueClosedError"]));
    });

    test("is served in the order of the calls, also those that come later and would fit", async () => {
      const { storage } = await openFull(3);
      const two = [entry("two a"), entry("two b")];
      const done: string[] = [];
      const note = async (name: string, entries: Entry[]): Promise<void> => {
        await storage.put(entries, PATIENT);
        done.push(name);
      };
      const waiting = [note("first", two), note("second", [entry("one")]), note("third", [entry("one")])];
      const deliveries = await take(storage, 3);
      for (const [index, delivery] of deliveries.entries()) {
        await storage.settle(delivery, { event: "ack" });
        await storage.stats();
        expect(done).toEqual([[], ["first"], ["first", "second"]][index]);
      }
      await storage.settle(await takeOne(storage), { event: "ack" });
      await Promise.all(waiting);
      expect(done).toEqual(["first", "second", "third"]);
    });

    test("can be withdrawn", async () => {
      const { bench, storage } = await openFull();
      const controller = new AbortController();
      const waiting = outcomeOf(storage.put([entry("2")], { signal: controller.signal }));
      const next = put(storage, "3");
      await storage.stats();
      controller.abort("enough");
      expect(await waiting).toBe("enough");
      await storage.settle(await takeOne(storage), { event: "ack" });
      await next;
      expect((await bench.jobs()).map(({ payload }) => payload)).toEqual(["payload 0", "3"]);
    });

    test.each(["stopWaiting", "close"] as const)("ends at once by %s, also in the same breath", async (end) => {
      const { bench, storage } = await openFull();
      const waiting = [put(storage, "2"), storage.put([entry("3")], { timeoutMs: 60_000 })].map(outcomeOf);
      await storage.stats();
      waiting.push(outcomeOf(put(storage, "4")));
      const startedAt = performance.now();
      await storage[end]();
      for (const outcome of await Promise.all(waiting)) expect(outcome).toBeInstanceOf(QueueClosedError);
      expect(performance.now() - startedAt).toBeLessThan(2000);
      expect(await bench.jobs()).toHaveLength(1);
    });

    test("is put by close if there is room for it", async () => {
      const { bench, storage } = await open(2);
      const puts = [put(storage, "1"), put(storage, "2"), put(storage, "3")].map(outcomeOf);
      await storage.close();
      const [, second, third] = await Promise.all(puts);
      expect(second).toEqual(expect.any(Number));
      expect(third).toBeInstanceOf(QueueClosedError);
      expect(await bench.jobs()).toHaveLength(2);
    });

    test("no longer waits after stopWaiting, but is put where there is room", async () => {
      const { storage } = await open(1);
      storage.stopWaiting();
      await put(storage, "1");
      await expect(put(storage, "2")).rejects.toThrow(QueueClosedError);
    });

    test("leaves the waits of other storages alone when its own closes", async () => {
      const { bench, storage } = await openFull();
      const other = bench.storage("default", { maxPendingJobs: 1 });
      const waiting = put(other, "2");
      await other.stats();
      await storage.close();
      await other.settle(await takeOne(other), { event: "ack" });
      await waiting;
    });
  });

  describe("while somebody else holds the lock, a put with a limit", () => {
    test("fails as busy, not as full, when its time is up", async () => {
      const { bench, storage } = await openFull();
      const unlock = await bench.lock();
      await expectBusy(storage.put([entry("2")], { timeoutMs: 150 }));
      await expectBusy(storage.put([entry("2")], AT_ONCE));
      await unlock();
      expect(await bench.jobs()).toHaveLength(1);
    });

    test("waits for room on: that somebody writes does not make it busy", async () => {
      const { bench, storage } = await openFull();
      const waiting = storage.put([entry("2")], { timeoutMs: 400 });
      const outcome = outcomeOf(waiting);
      await storage.stats();
      await storage.put([], PATIENT);
      const unlock = await bench.lock();
      expect(await outcome).toBeInstanceOf(FullError);
      await unlock();
    });

    test("gets its room when the lock is free", async () => {
      const { bench, storage } = await openFull();
      const delivery = await takeOne(storage);
      const waiting = put(storage, "2");
      await storage.put([], PATIENT);
      const unlock = await bench.lock();
      const settling = storage.settle(delivery, { event: "ack" });
      await storage.stats();
      await unlock();
      await settling;
      await waiting;
      await expectRightCounts(bench, storage, "default");
    });
  });
}

const FAIL = { event: "fail", lastError: undefined, reason: "rejected", category: undefined } as const;
const NACK = { event: "nack", delayMs: 0, lastError: undefined, exhaustedReason: "retries_exhausted" } as const;

async function setBudget(bench: Bench, maxAttempts: number): Promise<void> {
  for (const { id } of await bench.jobs()) await bench.edit(id, { maxAttempts });
}

function outcomeOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.catch((error: unknown) => error);
}

async function expectFull(putting: Promise<unknown>): Promise<void> {
  const error = await outcomeOf(putting);
  expect(error).toBeInstanceOf(FullError);
  expect(error).toMatchObject({ code: "FULL", name: "FullError" });
}

async function expectBusy(putting: Promise<unknown>): Promise<void> {
  const error = await outcomeOf(putting);
  expect(error).toBeInstanceOf(StorageError);
  expect(error).toMatchObject({ code: "BUSY", outcome: "failed" });
}
