import { describe, expect, test } from "vitest";
import { type JobState, STATES } from "../../dist/state.js";
import type { JobRecord, Storage } from "../../dist/storage/storage.js";
import type { Backend } from "../support/backend.ts";
import { expectRightCounts, openBench, put, putMany, take, takeOne } from "./jobs.ts";

/** Looking at jobs without claiming them. */
export function lookingContract(backend: Backend): void {
  describe("looking", () => {
    test("shows a job as it is stored, by its id and by its jobId, in every state", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      for (const state of STATES) {
        const id = await jobIn(storage, state, `the ${state} one`);
        const [stored] = (await bench.jobs("q")).filter((job) => job.id === id);
        const expected: JobRecord = {
          id,
          state,
          attempts: state === "ready" ? 0 : 1,
          availableAt: stored?.availableAt ?? Number.NaN,
          leaseUntil: stored?.leaseUntil ?? undefined,
          jobId: `the ${state} one`,
          lastError: state === "failed" ? "Error: no" : undefined,
          createdAt: stored?.createdAt ?? Number.NaN,
          updatedAt: stored?.updatedAt ?? Number.NaN,
        };
        expect(await storage.find({ id })).toEqual(expected);
        expect(await storage.find({ jobId: `the ${state} one` })).toEqual(expected);
        expect(await storage.list({ state, limit: 100 })).toEqual([expected]);
      }
    });

    test("finds nothing that is not there, or is another queue's", async () => {
      const bench = await openBench(backend);
      const id = await put(bench.storage("mine"), "payload", { jobId: "job" });
      const storage = bench.storage("another's");
      expect(await storage.find({ id })).toBeUndefined();
      expect(await storage.find({ jobId: "job" })).toBeUndefined();
      expect(await storage.find({ id: 999 })).toBeUndefined();
      expect(await storage.list({ state: "ready", limit: 10 })).toEqual([]);
    });

    test("finds what was confirmed the moment before, in every state that it goes through", async () => {
      const storage = (await openBench(backend)).storage();
      for (let round = 0; round < 20; round++) {
        const id = await put(storage);
        expect((await storage.find({ id }))?.state).toBe("ready");
        const delivery = await takeOne(storage);
        expect((await storage.find({ id }))?.state).toBe("processing");
        await storage.settle(delivery, { event: "ack" });
        expect((await storage.find({ id }))?.state).toBe("acked");
      }
    });

    test.each([...STATES])("lists jobs that are %s page by page, in the order of their ids", async (state) => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      const ids: number[] = [];
      for (let round = 0; round < 3; round++) {
        for (const each of STATES) {
          const id = await jobIn(storage, each);
          if (each === state) ids.push(id);
          await jobIn(bench.storage("another"), each);
        }
      }
      const pages: number[][] = [];
      for (let afterId = 0; pages.at(-1)?.length !== 0; afterId = pages.at(-1)?.at(-1) ?? 0) {
        pages.push((await storage.list({ state, limit: 2, afterId })).map(({ id }) => id));
      }
      expect(pages).toEqual([ids.slice(0, 2), ids.slice(2), []]);
      expect(await storage.list({ state, limit: 0 })).toEqual([]);
    });

    test("lists jobs that wait for their time among those that are ready", async () => {
      const storage = (await openBench(backend)).storage();
      const ids: number[] = [];
      for (const delayMs of [0, 90_000, 0, 10_000, 50_000, 0]) ids.push(await put(storage, "payload", { delayMs }));
      const list = async (limit: number, afterId?: number): Promise<unknown> =>
        (await storage.list({ state: "ready", limit, afterId })).map(({ id }) => id);
      expect(await list(10)).toEqual(ids);
      expect(await list(3)).toEqual(ids.slice(0, 3));
      expect(await list(2, ids[2])).toEqual(ids.slice(3, 5));
    });

    test("lists leases in the order of the ids, not of their ends", async () => {
      const storage = (await openBench(backend)).storage();
      const ids = await putMany(storage, 4);
      for (const leaseMs of [40_000, 20_000, 30_000, 10_000]) await take(storage, 1, leaseMs);
      const list = async (limit: number): Promise<unknown> =>
        (await storage.list({ state: "processing", limit })).map(({ id }) => id);
      expect(await list(10)).toEqual(ids);
      expect(await list(2)).toEqual(ids.slice(0, 2));
    });

    test("shows a job whose lease ran out as it is, without ending its delivery", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const id = await put(storage);
      await takeOne(storage, 1000);
      await bench.age(2000);
      const before = await bench.exact(id);
      expect(await storage.find({ id })).toMatchObject({ state: "processing", attempts: 1 });
      expect(await storage.list({ state: "processing", limit: 1 })).toHaveLength(1);
      expect(await bench.exact(id)).toEqual(before);
      await expectRightCounts(bench, storage, "default");
    });
  });

  describe("dead letters", () => {
    test("are listed with why they died and the bytes that were put", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      const id = await put(storage, "not even { JSON \u0000", { jobId: "job" });
      const lastError = "Permanent: invalid customer";
      await storage.settle(await takeOne(storage), { event: "fail", lastError, reason: "rejected", category: "bad" });
      const [stored] = await bench.jobs("q");
      const [dead, ...more] = await storage.listFailed({ limit: 10 });
      expect(more).toEqual([]);
      expect({ ...dead, payload: Buffer.from(dead?.payload ?? []).toString() }).toEqual({
        id,
        attempts: 1,
        reason: "rejected",
        category: "bad",
        lastError,
        jobId: "job",
        createdAt: stored?.createdAt,
        updatedAt: stored?.updatedAt,
        payload: "not even { JSON \u0000",
      });
    });

    test("that died of nothing that is known are said to be legacies", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      for (const failureReason of [null, "from a later version", "retries_exhausted"]) {
        await bench.edit(await jobIn(storage, "failed"), { failureReason });
      }
      const list = async (reason?: "legacy_unknown" | "retries_exhausted"): Promise<unknown> =>
        (await storage.listFailed({ limit: 10, reason })).map((dead) => dead.reason);
      expect(await list()).toEqual(["legacy_unknown", "legacy_unknown", "retries_exhausted"]);
      expect(await list("legacy_unknown")).toEqual(["legacy_unknown", "legacy_unknown"]);
      expect(await list("retries_exhausted")).toEqual(["retries_exhausted"]);
    });

    test("can be listed by reason and category, from an id on, and past some of them", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      const ids: number[] = [];
      for (const category of ["a", "b", "a", undefined, "a"]) {
        ids.push(await put(storage));
        const reason = category === undefined ? "explicit_permanent_failure" : "rejected";
        await storage.settle(await takeOne(storage), { event: "fail", lastError: undefined, reason, category });
      }
      await jobIn(bench.storage("another"), "failed");
      for (const state of ["ready", "processing", "acked"] as const) await jobIn(storage, state);
      const list = async (which: Omit<Parameters<Storage["listFailed"]>[0], "limit">, limit = 10): Promise<unknown> =>
        (await storage.listFailed({ limit, ...which })).map(({ id }) => ids.indexOf(id));
      expect(await list({})).toEqual([0, 1, 2, 3, 4]);
      expect(await list({}, 0)).toEqual([]);
      expect(await list({}, 2)).toEqual([0, 1]);
      expect(await list({ afterId: ids[1] }, 2)).toEqual([2, 3]);
      expect(await list({ offset: 3 })).toEqual([3, 4]);
      expect(await list({ offset: 1, afterId: ids[1] }, 1)).toEqual([3]);
      expect(await list({ category: "a" })).toEqual([0, 2, 4]);
      expect(await list({ category: "a", offset: 1 }, 1)).toEqual([2]);
      expect(await list({ reason: "explicit_permanent_failure" })).toEqual([3]);
      expect(await list({ reason: "explicit_permanent_failure", category: "a" })).toEqual([]);
    });
  });
}

/** Puts a job and brings it to a state. Nothing else may be ready. */
async function jobIn(storage: Storage, state: JobState, jobId?: string): Promise<number> {
  if (state === "ready") {
    const [hidden] = await storage.put([{ payload: "payload", jobId, delayMs: 60_000, maxAttempts: 4 }], {});
    return hidden?.id ?? Number.NaN;
  }
  const id = await put(storage, "payload", { jobId });
  const delivery = await takeOne(storage);
  if (state === "acked") await storage.settle(delivery, { event: "ack" });
  const reason = "explicit_permanent_failure";
  if (state === "failed") {
    await storage.settle(delivery, { event: "fail", lastError: "Error: no", reason, category: undefined });
  }
  return id;
}
