import { describe, expect, test } from "vitest";
import type { Envelope } from "../../dist/storage/storage.js";
import type { Backend } from "../support/backend.ts";
import { event, expectConflict, expectRightCounts, LEASE_MS, openBench, put, takeOne } from "./jobs.ts";

const IDENTITY = { key: "event-identity:v1:a", fingerprint: "event-payload:v1:1" };
const OTHER_PAYLOAD = { ...IDENTITY, fingerprint: "event-payload:v1:2" };
const OTHER_IDENTITY = { ...IDENTITY, key: "event-identity:v1:b" };

/** Events: one payload for several queues. */
export function dispatchingContract(backend: Backend): void {
  describe("dispatch", () => {
    test("stores the payload ready in each queue, with one id and one identity", async () => {
      const bench = await openBench(backend);
      const earliest = Date.now();
      const [outcomes = []] = await bench
        .storage("bus")
        .dispatch([event(["b", "a"], { payload: "é", jobId: "event", identity: IDENTITY, context: "trace" })]);
      const jobs = await bench.jobs();
      expect(outcomes).toEqual(jobs.map(({ id }) => ({ id, inserted: true })));
      const createdAt = jobs[0]?.createdAt as number;
      expect(createdAt).toBeGreaterThanOrEqual(earliest);
      expect(createdAt).toBeLessThanOrEqual(Date.now());
      const stored = {
        payload: "é",
        state: "ready",
        attempts: 0,
        maxAttempts: 4,
        releases: 0,
        availableAt: createdAt,
        createdAt,
        updatedAt: createdAt,
        leaseUntil: null,
        receipt: null,
        lastError: null,
        failureReason: null,
        failureCategory: null,
        jobId: "event",
        context: "trace",
        identityKey: IDENTITY.key,
        fingerprint: IDENTITY.fingerprint,
      };
      expect(jobs).toEqual(["b", "a"].map((queue, index) => ({ id: outcomes[index]?.id, queue, ...stored })));
    });

    test("adds all events in the order in which they were given, whichever queues they go to", async () => {
      const bench = await openBench(backend);
      const events = [event(["a", "b"]), event(["b"]), event(["c", "a"])];
      const outcomes = await bench.storage().dispatch(events);
      expect(outcomes.map((each) => each.length)).toEqual([2, 1, 2]);
      const jobs = await bench.jobs();
      const expected = events.flatMap(({ jobId, queues }) => queues.map((queue) => ({ jobId, queue })));
      expect(jobs.map(({ jobId, queue }) => ({ jobId, queue }))).toEqual(expected);
      expect(outcomes.flat()).toEqual(jobs.map(({ id }) => ({ id, inserted: true })));
      for (const queue of ["a", "b", "c"]) await expectRightCounts(bench, bench.storage(queue), queue);
    });

    test("of nothing does nothing", async () => {
      const bench = await openBench(backend);
      expect(await bench.storage().dispatch([])).toEqual([]);
      expect(await bench.jobs()).toEqual([]);
    });

    test("gives consumers of a text the text, and those of bytes the bytes, however large", async () => {
      const bench = await openBench(backend);
      const payload = "é".repeat(100_000);
      const texts = bench.storage("texts", { text: true });
      await texts.dispatch([event(["texts", "bytes"], { payload })]);
      const received = [await takeOne(texts), await takeOne(bench.storage("bytes"))];
      for (const each of received) expect(Buffer.from(each.payload).toString() === payload).toBe(true);
    });

    test("wakes whoever waits for work in one of the queues", async () => {
      const bench = await openBench(backend);
      const bus = bench.storage("bus");
      const waiting = ["a", "b"].map((queue) => bench.storage(queue).claim({ limit: 1, leaseMs: LEASE_MS }));
      // They are waiting for sure.
      for (const queue of ["a", "b"]) await bench.storage(queue).stats();
      const [outcomes = []] = await bus.dispatch([event(["a", "b"])]);
      expect((await Promise.all(waiting)).map(([delivery]) => delivery?.id)).toEqual(outcomes.map(({ id }) => id));
    });

    test("knows no limit, and counts towards that of the queue", async () => {
      const bench = await openBench(backend);
      const limited = bench.storage("limited", { maxPendingJobs: 1 });
      await limited.dispatch([event(["limited"]), event(["limited"])]);
      expect(await limited.stats()).toMatchObject({ ready: 2 });
      await expect(
        limited.put([{ payload: "", jobId: undefined, delayMs: 0, maxAttempts: 1 }], { timeoutMs: 0 }),
      ).rejects.toMatchObject({ code: "FULL" });
    });

    test("after the storage was closed is refused", async () => {
      const storage = (await openBench(backend)).storage();
      await storage.close();
      await expect(storage.dispatch([event(["a"])])).rejects.toMatchObject({ code: "CLOSED" });
    });
  });

  describe("an event that is there already", () => {
    /** What the queue `q` holds, an envelope for it, and whether that is the event there or in conflict with it. */
    const cases: readonly [what: string, there: Partial<Envelope>[], given: Partial<Envelope>, same: boolean][] = [
      ["by its id, without identity, whatever the payload", [{ jobId: "1" }], { jobId: "1", payload: "another" }, true],
      [
        "by its id, where only the one there has an identity",
        [{ jobId: "1", identity: IDENTITY }],
        { jobId: "1", payload: "another" },
        true,
      ],
      ["by its id and identity", [{ jobId: "1", identity: IDENTITY }], { jobId: "1", identity: IDENTITY }, true],
      [
        "by its identity under another id",
        [{ jobId: "1", identity: IDENTITY }],
        { jobId: "2", identity: IDENTITY },
        true,
      ],
      [
        "by its identity, with another payload",
        [{ jobId: "1", identity: IDENTITY }],
        { jobId: "2", identity: OTHER_PAYLOAD },
        false,
      ],
      [
        "by its id and identity, with another payload",
        [{ jobId: "1", identity: IDENTITY }],
        { jobId: "1", identity: OTHER_PAYLOAD },
        false,
      ],
      [
        "by its id, with another identity",
        [{ jobId: "1", identity: IDENTITY }],
        { jobId: "1", identity: OTHER_IDENTITY },
        false,
      ],
      ["by its id, where the one there has no identity", [{ jobId: "1" }], { jobId: "1", identity: IDENTITY }, false],
      [
        "twice: one by its id, one by its identity",
        [
          { jobId: "1", identity: OTHER_IDENTITY },
          { jobId: "2", identity: IDENTITY },
        ],
        { jobId: "1", identity: IDENTITY },
        false,
      ],
      [
        "twice, and the one of its id has no identity",
        [{ jobId: "1" }, { jobId: "2", identity: IDENTITY }],
        { jobId: "1", identity: IDENTITY },
        false,
      ],
    ];

    test.each(cases)("%s", async (_what, there, given, same) => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      const [[known] = []] = await storage.dispatch(there.map((each) => event(["q"], each)));
      const before = await bench.jobs();
      const dispatching = storage.dispatch([event(["p", "q", "r"], given)]);
      if (same) {
        const [outcomes = []] = await dispatching;
        expect(outcomes.map(({ inserted }) => inserted)).toEqual([true, false, true]);
        expect(outcomes[1]?.id).toBe(known?.id);
      } else {
        await expectConflict(dispatching, given.jobId as string, "q");
        for (const queue of ["p", "r"]) expect(await bench.jobs(queue)).toEqual([]);
      }
      expect(await bench.jobs("q")).toEqual(before);
      for (const queue of ["p", "q", "r"]) await expectRightCounts(bench, bench.storage(queue), queue);
    });

    test.each(["ready", "processing", "acked", "failed"])("is left as it is when it is %s", async (state) => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      const [[known] = []] = await storage.dispatch([event(["q"], { jobId: "1", identity: IDENTITY })]);
      if (state !== "ready") {
        const delivery = await takeOne(storage);
        if (state === "acked") await storage.settle(delivery, { event: "ack" });
        if (state === "failed")
          await storage.settle(delivery, { event: "fail", lastError: "", reason: "rejected", category: undefined });
      }
      const before = await bench.exact(known?.id as number);
      const again = { maxAttempts: 9, context: "trace", identity: IDENTITY };
      expect(await storage.dispatch([event(["q"], { ...again, jobId: "1" }), event(["q"], again)])).toEqual([
        [{ id: known?.id, inserted: false }],
        [{ id: known?.id, inserted: false }],
      ]);
      expect(await bench.exact(known?.id as number)).toEqual(before);
    });

    test("is noticed within one call, and in a queue that is named twice", async () => {
      const bench = await openBench(backend);
      const twin = { identity: IDENTITY };
      const outcomes = await bench.storage().dispatch([event(["q", "q"], twin), event(["q", "r"], twin)]);
      expect(outcomes.map((each) => each.map(({ inserted }) => inserted))).toEqual([
        [true, false],
        [false, true],
      ]);
      expect(await bench.jobs()).toHaveLength(2);
    });

    test("in conflict with another one of the same call undoes the whole call", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      const twin = event(["q"], { jobId: "2", identity: OTHER_PAYLOAD });
      await expectConflict(storage.dispatch([event(["q", "r"], { identity: IDENTITY }), twin]), "2", "q");
      expect(await bench.jobs()).toEqual([]);
      expect(await storage.queues("")).toEqual([]);
    });

    test("undoes nothing that others do at the same time", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      await storage.dispatch([event(["q"], { identity: IDENTITY })]);
      const outcomes = await Promise.allSettled([
        put(storage),
        storage.dispatch([event(["q", "r"], { identity: OTHER_PAYLOAD })]),
        storage.dispatch([event(["q", "r"])]),
      ]);
      expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
      expect((await bench.jobs()).map(({ queue }) => queue).sort()).toEqual(["q", "q", "q", "r"]);
      for (const queue of ["q", "r"]) await expectRightCounts(bench, bench.storage(queue), queue);
    });

    test("is another event in another queue", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.dispatch([event(["q"], { identity: IDENTITY })]);
      expect(await storage.dispatch([event(["r"], { identity: OTHER_PAYLOAD })])).toMatchObject([[{ inserted: true }]]);
    });

    test("may be a job that was put under its id", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("q");
      const id = await put(storage, "job", { jobId: "1" });
      expect(await storage.dispatch([event(["q"], { jobId: "1" })])).toEqual([[{ id, inserted: false }]]);
      await expectConflict(storage.dispatch([event(["q"], { jobId: "1", identity: IDENTITY })]), "1", "q");
    });
  });

  describe("the names of queues", () => {
    test("come with their counts, by their beginning, in order", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage("bus:a");
      // By their bytes, the last two would be the other way round.
      const names = ["bus:a", "bus:b", "bus:\u{1F600}", "bus:\uFF5E"];
      await storage.dispatch([event(["bus", ...names.slice(1), "bus:a", "buses", "Bus:a", "bus%"])]);
      await takeOne(storage);
      const one = { ready: 1, processing: 0, acked: 0, failed: 0 };
      expect(await storage.queues("bus:")).toEqual([
        { queue: "bus:a", ...one, ready: 0, processing: 1 },
        ...names.slice(1).map((queue) => ({ queue, ...one })),
      ]);
      expect(await storage.queues("bus:a")).toHaveLength(1);
      expect(await storage.queues("bus_")).toEqual([]);
      expect(await storage.queues("")).toHaveLength(8);
    });

    test("include those whose jobs are done", async () => {
      const storage = (await openBench(backend)).storage("q");
      await storage.dispatch([event(["q"])]);
      await storage.settle(await takeOne(storage), { event: "ack" });
      expect(await storage.queues("q")).toEqual([{ queue: "q", ready: 0, processing: 0, acked: 1, failed: 0 }]);
    });
  });
}
