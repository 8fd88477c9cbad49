import { describe, expect, test } from "vitest";
import { StorageError } from "../../dist/errors.js";
import type { Delivery, Storage } from "../../dist/storage/storage.js";
import type { Backend, Bench } from "../support/backend.ts";
import {
  entry,
  expectRightCounts,
  LEASE_MS,
  onlyJob,
  openBench,
  PATIENT,
  put,
  putMany,
  take,
  takeOne,
} from "./jobs.ts";

const DAY_MS = 86_400_000;

/** Adding jobs: what is stored, and what a `jobId` is good for. */
export function puttingContract(backend: Backend): void {
  describe("put", () => {
    test("stores the job ready, with nothing delivered yet", async () => {
      const bench = await openBench(backend);
      const earliest = Date.now();
      const id = await put(bench.storage("q"), "payload", { jobId: "job", maxAttempts: 7, context: "trace" });
      const { createdAt, ...stored } = await onlyJob(bench);
      expect(createdAt).toBeGreaterThanOrEqual(earliest);
      expect(createdAt).toBeLessThanOrEqual(Date.now());
      expect(stored).toEqual({
        id,
        queue: "q",
        payload: "payload",
        state: "ready",
        attempts: 0,
        maxAttempts: 7,
        releases: 0,
        availableAt: createdAt,
        updatedAt: createdAt,
        leaseUntil: null,
        receipt: null,
        lastError: null,
        failureReason: null,
        failureCategory: null,
        jobId: "job",
        context: "trace",
        identityKey: null,
        fingerprint: null,
      });
    });

    test("gives a delayed job its time by the same clock reading", async () => {
      const bench = await openBench(backend);
      await put(bench.storage(), "payload", { delayMs: 5000 });
      const { availableAt, createdAt, updatedAt } = await onlyJob(bench);
      expect({ delayMs: availableAt - createdAt, updatedAt }).toEqual({ delayMs: 5000, updatedAt: createdAt });
    });

    test("gives the link to a trace back with every delivery, and keeps it whatever becomes of the job", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const context = `00-${"4bf92f35".repeat(4)}-00f067aa0ba902b7-01 é€`;
      await storage.put([entry("linked", { context }), entry("alone")], PATIENT);
      const contexts = async (): Promise<(string | undefined)[]> => (await take(storage, 2)).map((job) => job.context);
      const again = { event: "nack", delayMs: 0, lastError: undefined, exhaustedReason: "retries_exhausted" } as const;
      const [first, other] = await take(storage, 2);
      expect([first?.context, other?.context]).toEqual([context, undefined]);
      await storage.settle(first as Delivery, again);
      await storage.settle(other as Delivery, { event: "release" });
      expect(await contexts()).toEqual([context, undefined]);
      await bench.age(LEASE_MS);
      const [third] = await take(storage, 2);
      expect(third?.context).toBe(context);
      await storage.settle(third as Delivery, { ...again, event: "fail", reason: "rejected", category: undefined });
      expect((await bench.jobs()).map((job) => [job.state, job.context])).toEqual([
        ["failed", context],
        ["processing", null],
      ]);
    });

    test("gives the payload back byte for byte", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => (index * 31) % 256);
      const payloads = [bytes, bytes.subarray(3, 260), new Uint8Array(0), "text: ä€😀\0", ""];
      await storage.put(
        payloads.map((payload) => ({ ...entry(""), payload })),
        PATIENT,
      );
      const claimed = await take(storage, payloads.length);
      const text = new TextEncoder();
      expect(claimed.map(({ payload }) => [...payload])).toEqual(
        payloads.map((payload) => [...(typeof payload === "string" ? text.encode(payload) : payload)]),
      );
    });

    test.each([new Uint8Array(0), ""])("stores an empty payload that has no company", async (payload) => {
      const storage = (await openBench(backend)).storage();
      await storage.put([{ ...entry(""), payload }], PATIENT);
      expect((await takeOne(storage)).payload).toHaveLength(0);
    });

    test("stores the bytes that were passed, whatever the caller does with its buffer afterwards", async () => {
      const storage = (await openBench(backend)).storage();
      const small = new Uint8Array(10).fill(1);
      const large = new Uint8Array(200_000).fill(1);
      const stored = storage.put(
        [small, large].map((payload) => ({ ...entry(""), payload })),
        PATIENT,
      );
      small.fill(2);
      large.fill(2);
      await stored;
      const claimed = await take(storage, 2);
      expect(claimed.map(({ payload }) => [...payload].every((byte) => byte === 1))).toEqual([true, true]);
    });

    test("of many gives ids in the order of the entries", async () => {
      const bench = await openBench(backend);
      const ids = await putMany(bench.storage(), 250);
      expect(ids).toEqual([...ids].sort((a, b) => a - b));
      const jobs = await bench.jobs();
      expect(jobs.map(({ id, payload }) => [id, payload])).toEqual(ids.map((id, index) => [id, `payload ${index}`]));
    });

    test("of none adds none", async () => {
      const bench = await openBench(backend);
      expect(await bench.storage().put([], PATIENT)).toEqual([]);
    });

    test("adds all entries or none: one that cannot be stored undoes the others", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const bystander = put(storage, "before");
      const batch = storage.put(
        [entry("1"), entry("2", { jobId: "known" }), entry("bad", { maxAttempts: Number.NaN }), entry("4")],
        PATIENT,
      );
      const another = put(storage, "after");
      await expect(batch).rejects.toSatisfy((error) => error instanceof StorageError && error.outcome === "failed");
      await Promise.all([bystander, another]);
      expect((await bench.jobs()).map(({ payload }) => payload)).toEqual(["before", "after"]);
      await expectRightCounts(bench, storage, "default");
      // And the refused `jobId` is not known.
      expect(await storage.put([entry("2", { jobId: "known" })], PATIENT)).toMatchObject([{ inserted: true }]);
    });
  });

  describe("a jobId", () => {
    const known = { jobId: "job" };

    test("that occurs twice in a batch makes one job", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const [first, twin, other] = await storage.put([entry("1", known), entry("2", known), entry("3")], PATIENT);
      expect(first?.inserted).toBe(true);
      expect(twin).toEqual({ id: first?.id, inserted: false });
      expect(other?.inserted).toBe(true);
      expect((await bench.jobs()).map(({ payload }) => payload)).toEqual(["1", "3"]);
      await expectRightCounts(bench, storage, "default");
    });

    test("that is put twice at the same time makes one job", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const puts = Array.from({ length: 20 }, (_, index) => storage.put([entry(`${index}`, known)], PATIENT));
      const outcomes = (await Promise.all(puts)).flat();
      expect(outcomes.filter(({ inserted }) => inserted)).toHaveLength(1);
      expect(new Set(outcomes.map(({ id }) => id)).size).toBe(1);
      await onlyJob(bench);
    });

    /** What is done to the job before its id is put once more. */
    const histories: { readonly [state: string]: (storage: Storage, bench: Bench) => Promise<unknown> } = {
      ready: async () => undefined,
      processing: (storage) => takeOne(storage),
      "processing and expired": async (storage, bench) => {
        await takeOne(storage);
        await bench.age(LEASE_MS);
      },
      acked: async (storage) => storage.settle(await takeOne(storage), { event: "ack" }),
      "given back": async (storage) => storage.settle(await takeOne(storage), { event: "release" }),
      failed: async (storage) =>
        storage.settle(await takeOne(storage), {
          event: "fail",
          lastError: undefined,
          reason: "rejected",
          category: undefined,
        }),
    };

    test.each(Object.entries(histories))("is known while its job is %s: nothing changes", async (_, happen) => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const id = await put(storage, "first", known);
      await happen(storage, bench);
      const before = await bench.exact(id);
      expect(await storage.put([entry("second", { ...known, delayMs: 5, maxAttempts: 9 })], PATIENT)).toEqual([
        { id, inserted: false },
      ]);
      expect(await bench.exact(id)).toEqual(before);
      await onlyJob(bench);
      await expectRightCounts(bench, storage, "default");
    });

    test("is known while its job waits for its time", async () => {
      const bench = await openBench(backend);
      const id = await put(bench.storage(), "first", { ...known, delayMs: DAY_MS });
      expect(await bench.storage().put([entry("second", known)], PATIENT)).toEqual([{ id, inserted: false }]);
    });

    test("is free again when the row is gone, and gets a new number", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const id = await put(storage, "first", known);
      await bench.remove(id);
      const [again] = await storage.put([entry("second", known)], PATIENT);
      expect(again?.inserted).toBe(true);
      expect(again?.id).toBeGreaterThan(id);
    });

    test("belongs to its queue", async () => {
      const bench = await openBench(backend);
      const [a, b] = [bench.storage("a"), bench.storage("b")];
      const ids = [await put(a, "1", known), await put(b, "2", known)];
      expect(new Set(ids).size).toBe(2);
      const again = await Promise.all([a, b].map((storage) => storage.put([entry("3", known)], PATIENT)));
      expect(again.flat()).toEqual(ids.map((id) => ({ id, inserted: false })));
    });
  });
}
