import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { QueueClosedError, StorageError } from "../../dist/errors.js";
import type { Consumer, Delivery, Storage } from "../../dist/storage/storage.js";
import type { Backend } from "../support/backend.ts";
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

/** Waits, and what ends them: work, time, a signal, `close()`. */
export function waitingContract(backend: Backend): void {
  describe("a waiting claim", () => {
    test("gets a job as soon as there is one", async () => {
      const storage = (await openBench(backend)).storage();
      const waiting = wait(storage);
      const id = await put(storage);
      expect(await waiting).toMatchObject([{ id, attempt: 1 }]);
    });

    test("takes what is there rather than wait for all that it may take", async () => {
      const storage = (await openBench(backend)).storage();
      const waiting = wait(storage, { limit: 10 });
      const ids = await putMany(storage, 3);
      expect(await waiting).toMatchObject(ids.map((id) => ({ id })));
    });

    test("gets a delayed job when its time has come, and not before", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const waiting = wait(storage);
      await put(storage, "payload", { delayMs: 120 });
      const { availableAt } = await onlyJob(bench);
      await waiting;
      expect(Date.now()).toBeGreaterThanOrEqual(availableAt);
      const { updatedAt } = await onlyJob(bench);
      expect(updatedAt - availableAt).toBeGreaterThanOrEqual(0);
      expect(updatedAt - availableAt).toBeLessThan(2000);
    });

    test("gets a job whose lease runs out meanwhile", async () => {
      const storage = (await openBench(backend)).storage();
      const id = await put(storage);
      const { leaseUntil } = await takeOne(storage, 120);
      const [delivery] = await wait(storage);
      expect(delivery).toMatchObject({ id, attempt: 2 });
      expect(Date.now()).toBeGreaterThanOrEqual(leaseUntil);
    });

    test("gets a job that another one gave back", async () => {
      const storage = (await openBench(backend)).storage();
      const id = await put(storage);
      const delivery = await takeOne(storage);
      const waiting = wait(storage);
      await storage.settle(delivery, { event: "release" });
      expect(await waiting).toMatchObject([{ id, attempt: 1 }]);
    });

    test("is served in the order in which it came, whichever way it was made", async () => {
      const bench = await openBench(backend);
      const [one, two] = [bench.storage(), bench.storage()];
      await one.stats();
      await two.stats();
      const waiting = [
        wait(one),
        wait(two, { limit: 2 }),
        wait(one, { leaseMs: 5000 }),
        consumer(two)
          .claim(0, { waitMs: Number.POSITIVE_INFINITY })
          .then((delivery) => [delivery as Delivery]),
        wait(two),
      ];
      // One by one, so that each is given away before the next one is there.
      const ids = [await put(one), ...(await putMany(one, 2)), await put(one), await put(one), await put(one)];
      const [a, b, c, d, e, f] = ids;
      expect((await Promise.all(waiting)).map((deliveries) => deliveries.map(({ id }) => id))).toEqual([
        [a],
        [b, c],
        [d],
        [e],
        [f],
      ]);
    });

    test("gets its own lease and budget, also when it is served together with others", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.stats();
      const waiting = [
        wait(storage),
        wait(storage, { leaseMs: 5000 }),
        consumer(storage, 7).claim(0, { waitMs: Number.POSITIVE_INFINITY }),
        consumer(storage).claim(0, { waitMs: Number.POSITIVE_INFINITY }),
      ];
      await storage.stats();
      await putMany(storage, 4);
      await Promise.all(waiting);
      const jobs = await bench.jobs();
      expect(
        jobs.map(({ leaseUntil, updatedAt, maxAttempts }) => [(leaseUntil ?? 0) - updatedAt, maxAttempts]),
      ).toEqual([
        [LEASE_MS, 4],
        [5000, 4],
        [LEASE_MS, 7],
        [LEASE_MS, 4],
      ]);
    });

    test("that is made while many wait is served after them", async () => {
      const storage = (await openBench(backend)).storage();
      const waiting = Array.from({ length: 150 }, () => wait(storage));
      const ids = await putMany(storage, 150);
      expect((await Promise.all(waiting)).flat().map(({ id }) => id)).toEqual(ids);
    });

    test("ends with nothing when its time is up", async () => {
      const storage = (await openBench(backend)).storage();
      await storage.stats();
      const startedAt = performance.now();
      expect(await wait(storage, { timeoutMs: 80 })).toEqual([]);
      const tookMs = performance.now() - startedAt;
      expect(tookMs).toBeGreaterThanOrEqual(79);
      expect(tookMs).toBeLessThan(2000);
    });

    test("that ended takes nothing any more", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await wait(storage, { timeoutMs: 10 });
      await put(storage);
      expect(await onlyJob(bench)).toMatchObject({ state: "ready", attempts: 0 });
    });

    test("ends with the signal's reason, and takes nothing any more", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.stats();
      const controller = new AbortController();
      const waiting = wait(storage, { signal: controller.signal });
      const other = wait(storage);
      await storage.stats();
      const reason = new Error("enough");
      controller.abort(reason);
      await expect(waiting).rejects.toBe(reason);
      const id = await put(storage);
      expect(await other).toMatchObject([{ id }]);
      await put(storage);
      await expectRightCounts(bench, storage, "default");
      expect((await bench.jobs()).map(({ state }) => state)).toEqual(["processing", "ready"]);
    });

    test("with a signal that was aborted before takes nothing", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage);
      const reason = new Error("enough");
      await expect(wait(storage, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
      expect(await onlyJob(bench)).toMatchObject({ state: "ready", attempts: 0 });
    });

    test("that is aborted just when it is served has the job or gives it back uncounted", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.stats();
      for (let round = 0; round < 60; round++) {
        const controller = new AbortController();
        const reason = new Error("enough");
        const queue = `round ${round}`;
        const claims = bench.storage(queue);
        const waiting = wait(claims, { signal: controller.signal }).catch((error: unknown) => error);
        const putting = put(claims);
        for (let turn = 0; turn < round % 12; turn++) await nextTurn();
        controller.abort(reason);
        const outcome = await waiting;
        await putting;
        const job = await onlyJob(bench, queue);
        if (outcome === reason) {
          expect(job).toMatchObject({ state: "ready", attempts: 0, receipt: null });
        } else {
          expect(outcome).toMatchObject([{ id: job.id, receipt: job.receipt, attempt: 1 }]);
          expect(job.state).toBe("processing");
        }
        await expectRightCounts(bench, claims, queue);
      }
    });
  });

  describe("a put", () => {
    test("with a signal that was aborted before adds nothing", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.put([], PATIENT);
      const reason = new Error("enough");
      await expect(storage.put([entry("1")], { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
      expect(await bench.jobs()).toEqual([]);
    });

    test("that is aborted in the same breath adds nothing or says what it added", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.put([], PATIENT);
      for (let round = 0; round < 30; round++) {
        const controller = new AbortController();
        const queue = `round ${round}`;
        const putting = bench.storage(queue).put([entry("1")], { signal: controller.signal });
        const outcome = putting.catch((error: unknown) => error);
        for (let turn = 0; turn < round % 6; turn++) await nextTurn();
        controller.abort("enough");
        const stored = (await bench.storage(queue).stats()) && (await bench.jobs(queue));
        if ((await outcome) === "enough") expect(stored).toEqual([]);
        else expect(await outcome).toMatchObject(stored.map(({ id }) => ({ id, inserted: true })));
      }
    });
  });

  describe("while somebody else holds the lock", () => {
    test("a put waits, and is done when the lock is free", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.put([], PATIENT);
      const unlock = await bench.lock();
      const putting = put(storage);
      expect(await storage.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 0 });
      expect(await bench.jobs()).toEqual([]);
      await unlock();
      expect(await putting).toBe((await onlyJob(bench)).id);
    });

    test("a put gives up when its time is up, and is not done later", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.put([], PATIENT);
      const unlock = await bench.lock();
      const startedAt = performance.now();
      await expectBusy(storage.put([entry("1")], { timeoutMs: 150 }));
      expect(performance.now() - startedAt).toBeGreaterThanOrEqual(149);
      expect(performance.now() - startedAt).toBeLessThan(3000);
      await unlock();
      await put(storage, "2");
      expect(await onlyJob(bench)).toMatchObject({ payload: "2" });
    });

    test("a put can be withdrawn", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.put([], PATIENT);
      const unlock = await bench.lock();
      const controller = new AbortController();
      const putting = storage.put([entry("1")], { signal: controller.signal });
      await storage.stats();
      controller.abort("enough");
      await expect(putting).rejects.toBe("enough");
      await unlock();
      await put(storage, "2");
      expect(await onlyJob(bench)).toMatchObject({ payload: "2" });
    });

    test("a look at an empty queue answers at once", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.put([], PATIENT);
      const unlock = await bench.lock();
      expect(await take(storage)).toEqual([]);
      await unlock();
    });

    test("a claim that must not wait fails soon if there is a job", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage);
      const unlock = await bench.lock();
      const startedAt = performance.now();
      await expectBusy(take(storage));
      expect(performance.now() - startedAt).toBeLessThan(3000);
      await unlock();
      expect(await onlyJob(bench)).toMatchObject({ state: "ready", attempts: 0 });
    });

    test("a waiting claim gets its job when the lock is free", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const id = await put(storage);
      const unlock = await bench.lock();
      const waiting = wait(storage);
      await storage.stats();
      await unlock();
      expect(await waiting).toMatchObject([{ id }]);
    });

    test("a claim fails when its time is up and there is a job", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage);
      const unlock = await bench.lock();
      await expectBusy(wait(storage, { timeoutMs: 150 }));
      await unlock();
      expect(await onlyJob(bench)).toMatchObject({ state: "ready", attempts: 0 });
    });
  });

  describe("close", () => {
    test("ends waiting claims at once", async () => {
      const storage = (await openBench(backend)).storage();
      const waiting = [
        wait(storage),
        wait(storage, { timeoutMs: 60_000 }),
        consumer(storage).claim(0, { waitMs: Number.POSITIVE_INFINITY }),
      ];
      await storage.stats();
      const ended = Promise.all(waiting.map((claim) => expectClosed(claim)));
      const startedAt = performance.now();
      await storage.close();
      await ended;
      expect(performance.now() - startedAt).toBeLessThan(2000);
    });

    test("ends claims that were made in the same breath", async () => {
      const storage = (await openBench(backend)).storage();
      await storage.stats();
      const ended = expectClosed(wait(storage));
      await storage.close();
      await ended;
    });

    test("commits the puts that were accepted", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const puts = Array.from({ length: 50 }, (_, index) => put(storage, `${index}`));
      await storage.close();
      const ids = await Promise.all(puts);
      expect((await bench.jobs()).map(({ id }) => id)).toEqual(ids);
      await expectRightCounts(bench, bench.storage(), "default");
    });

    test.each(["in the same breath", "before"])(
      "gives up what was accepted %s, after half a second, if the database is locked",
      async (when) => {
        const bench = await openBench(backend);
        const storage = bench.storage();
        await storage.put([], PATIENT);
        const unlock = await bench.lock();
        const puts = [put(storage, "1"), put(storage, "2")].map((putting) => expectBusy(putting));
        if (when === "before") await storage.stats();
        const startedAt = performance.now();
        await storage.close();
        await Promise.all(puts);
        const tookMs = performance.now() - startedAt;
        expect(tookMs).toBeGreaterThanOrEqual(400);
        expect(tookMs).toBeLessThan(3000);
        await unlock();
        expect(await bench.jobs()).toEqual([]);
      },
    );

    test("commits what was accepted if the lock becomes free in time", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await storage.put([], PATIENT);
      const unlock = await bench.lock();
      const putting = put(storage, "1");
      const closing = storage.close();
      await bench.storage().stats();
      await unlock();
      await closing;
      expect(await putting).toBe((await onlyJob(bench)).id);
    });

    test("refuses all later calls", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage);
      const lease = await takeOne(storage);
      const consuming = consumer(storage);
      await storage.close();
      const calls = [
        () => storage.put([entry("1")], PATIENT),
        () => wait(storage),
        () => take(storage),
        () => storage.settle(lease, { event: "ack" }),
        () => storage.extend(lease, 1000),
        () => storage.reclaim(),
        () => storage.stats(),
        () => consuming.claim(0, { waitMs: 0 }),
      ];
      for (const call of calls) await expectClosed(call());
      expect(() => consumer(storage)).toThrow(QueueClosedError);
      expect(await onlyJob(bench)).toMatchObject({ state: "processing", receipt: lease.receipt });
    });

    test("can be called again, also while it is under way, and before anything was done", async () => {
      const bench = await openBench(backend);
      await bench.storage().close();
      const storage = bench.storage();
      await put(storage);
      const closing = storage.close();
      await Promise.all([closing, storage.close()]);
      await storage.close();
    });

    test("leaves claimed jobs to their holders: another storage on the queue can settle them", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage);
      const lease = await takeOne(storage);
      await storage.close();
      expect(await onlyJob(bench)).toMatchObject({ state: "processing", receipt: lease.receipt });
      expect(await bench.storage().settle(lease, { event: "ack" })).toBe("acked");
    });

    test("leaves other storages on the same database alone", async () => {
      const bench = await openBench(backend);
      const [one, two] = [bench.storage(), bench.storage()];
      const closed = expectClosed(wait(one));
      const waiting = wait(two);
      await two.stats();
      await one.close();
      await closed;
      const id = await put(two);
      expect(await waiting).toMatchObject([{ id }]);
    });

    test("lets the next storage start anew", async () => {
      const bench = await openBench(backend);
      for (let round = 1; round <= 5; round++) {
        const storage = bench.storage();
        await put(storage);
        expect(await storage.stats()).toMatchObject({ ready: round });
        await storage.close();
      }
    });
  });
}

function wait(
  storage: Storage,
  options: { limit?: number; leaseMs?: number; timeoutMs?: number; signal?: AbortSignal } = {},
): Promise<Delivery[]> {
  return storage.claim({ limit: 1, leaseMs: LEASE_MS, ...options });
}

function consumer(storage: Storage, maxAttempts?: number): Consumer {
  const nothing = (): void => undefined;
  return storage.consume(
    { slots: 1, leaseMs: LEASE_MS, heartbeatMs: false, timeoutMs: undefined, graceMs: 0, maxAttempts },
    { leaseLost: nothing, leaseRenewed: nothing, timedOut: nothing, overdue: nothing },
  );
}

async function expectClosed(call: Promise<unknown>): Promise<void> {
  await expect(call).rejects.toBeInstanceOf(QueueClosedError);
}

async function expectBusy(call: Promise<unknown>): Promise<void> {
  const error = await call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(StorageError);
  expect(error).toMatchObject({ code: "BUSY", outcome: "failed" });
}
