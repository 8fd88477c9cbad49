import { describe, expect, test } from "vitest";
import type { Delivery, Storage } from "../../dist/storage/storage.js";
import type { Backend, Bench } from "../support/backend.ts";
import { event, expectConflict, expectRightCounts, LEASE_MS, openBench, take, takeOne } from "./jobs.ts";

const IDENTITY = { key: "event-identity:v1:a", fingerprint: "event-payload:v1:1" };
const OTHER_PAYLOAD = { ...IDENTITY, fingerprint: "event-payload:v1:2" };

/** Events that come of a job, and commit with its ack. */
export function emittingContract(backend: Backend): void {
  describe("what is emitted with an ack", () => {
    test("commits with it, and is linked to its job", async () => {
      const bench = await openBench(backend);
      const { storage, parent } = await held(bench);
      const emit = [event(["a", "b"]), event(["p"])];
      expect(await storage.settle(parent, { event: "ack", emit })).toBe("acked");
      const children = (await bench.jobs()).filter(({ id }) => id !== parent.id);
      expect(children.map(({ queue, state }) => `${queue} ${state}`)).toEqual(["a ready", "b ready", "p ready"]);
      expect(await bench.links()).toEqual(children.map(({ id }) => [parent.id, id]));
      for (const queue of ["a", "b", "p"]) await expectRightCounts(bench, bench.storage(queue), queue);
    });

    test("wakes whoever waits for it", async () => {
      const bench = await openBench(backend);
      const { storage, parent } = await held(bench);
      const other = bench.storage("a");
      const waiting = other.claim({ limit: 1, leaseMs: LEASE_MS });
      await other.stats();
      await storage.settle(parent, { event: "ack", emit: [event(["a"], { jobId: "child" })] });
      expect(await waiting).toMatchObject([{ jobId: "child" }]);
    });

    test("may be nothing", async () => {
      const bench = await openBench(backend);
      const { storage, parent } = await held(bench);
      expect(await storage.settle(parent, { event: "ack", emit: [] })).toBe("acked");
      expect(await bench.links()).toEqual([]);
    });

    test("is not stored if the delivery is lost", async () => {
      const bench = await openBench(backend);
      const { storage, parent } = await held(bench);
      await bench.edit(parent.id, { leaseUntil: Date.now() - 1 });
      await expect(storage.settle(parent, { event: "ack", emit: [event(["a"])] })).rejects.toMatchObject({
        code: "LEASE_EXPIRED",
      });
      expect(await bench.jobs("a")).toEqual([]);
      expect(await bench.links()).toEqual([]);
    });

    test("and conflicts undoes the ack: the delivery is still held", async () => {
      const bench = await openBench(backend);
      const { storage, parent } = await held(bench);
      await storage.dispatch([event(["b"], { identity: IDENTITY })]);
      const before = await bench.exact(parent.id);
      const emit = [event(["a", "b"], { jobId: "child", identity: OTHER_PAYLOAD })];
      await expectConflict(storage.settle(parent, { event: "ack", emit }), "child", "b");
      expect(await bench.exact(parent.id)).toEqual(before);
      expect(await bench.jobs("a")).toEqual([]);
      expect(await bench.links()).toEqual([]);
      await expectRightCounts(bench, storage, "p");
      const reason = { lastError: "conflict", reason: "permanent_handler_error", category: undefined } as const;
      expect(await storage.settle(parent, { event: "fail", ...reason })).toBe("failed");
    });

    test("is linked as well if it was there, and linked once", async () => {
      const bench = await openBench(backend);
      const { storage, parent } = await held(bench);
      const [[known] = []] = await storage.dispatch([event(["a"], { identity: IDENTITY })]);
      const twin = event(["a"], { identity: IDENTITY });
      await storage.settle(parent, { event: "ack", emit: [twin, twin] });
      expect(await bench.links()).toEqual([[parent.id, known?.id]]);
    });

    test("belongs to the executions of its job, with all that came of it before", async () => {
      const bench = await openBench(backend);
      const { storage, parent } = await held(bench);
      await bench.track("one", [parent.id]);
      await bench.track("two", [parent.id]);
      await bench.track("other", []);
      // The child is there already, with a child of its own and a child of that, which leads back to it.
      const [[child] = []] = await storage.dispatch([event(["a"], { identity: IDENTITY })]);
      const a = bench.storage("a");
      await a.settle(await takeOne(a), { event: "ack", emit: [event(["b"])] });
      const b = bench.storage("b");
      await b.settle(await takeOne(b), { event: "ack", emit: [event(["c"]), event(["a"], { identity: IDENTITY })] });
      expect(await bench.tracked("one")).toEqual([parent.id]);
      await bench.track("two", [child?.id as number]);
      await storage.settle(parent, { event: "ack", emit: [event(["a"], { identity: IDENTITY }), event(["d"])] });
      const all = (await bench.jobs()).map(({ id }) => id);
      expect(all).toHaveLength(5);
      expect(await bench.tracked("one")).toEqual(all);
      expect(await bench.tracked("two")).toEqual(all);
      expect(await bench.tracked("other")).toEqual([]);
    });

    test("and belongs to an execution is deleted by nothing; what does not goes with its links", async () => {
      const bench = await openBench(backend);
      const { storage, parent } = await held(bench);
      await bench.track("one", [parent.id]);
      await storage.settle(parent, { event: "ack", emit: [event(["a"])] });
      const [free] = await take(storage);
      expect(free).toBeUndefined();
      await storage.dispatch([event(["p"])]);
      await storage.settle(await takeOne(storage), { event: "ack", emit: [event(["b"])] });
      const [tracked, untracked] = [(await bench.jobs("a"))[0], (await bench.jobs("b"))[0]];
      expect(await bench.storage("a").remove(tracked?.id as number)).toBe(false);
      expect(await bench.storage("b").remove(untracked?.id as number)).toBe(true);
      expect(await bench.links()).toEqual([[parent.id, tracked?.id]]);
      await bench.age(1000);
      expect(await storage.purge({ olderThanMs: 1, includeFailed: true })).toBe(1);
      expect((await bench.jobs()).map(({ id }) => id)).toEqual([parent.id, tracked?.id]);
    });
  });
}

/** A delivery of the queue `p`. */
async function held(bench: Bench): Promise<{ storage: Storage; parent: Delivery }> {
  const storage = bench.storage("p");
  await storage.dispatch([event(["p"])]);
  return { storage, parent: await takeOne(storage) };
}
