import { describe, expect, test } from "vitest";
import { LeaseExpiredError, NotFoundError } from "../../dist/errors.js";
import {
  EVENTS,
  type JobEvent,
  type JobFacts,
  type JobOutcome,
  type JobState,
  MAX_RELEASES,
  STATES,
  transition,
} from "../../dist/state.js";
import type { Lease, Settlement, Storage } from "../../dist/storage/storage.js";
import type { Backend, Bench, StoredJob } from "../support/backend.ts";
import { expectRightCounts, LEASE_MS, onlyJob, put, shareBench, take, takeOne } from "./jobs.ts";

const EXTENSION_MS = 7_000;
const DELAY_MS = 3_000;
const FAR_FUTURE = 4_102_444_800_000;

const SETTLEMENTS = {
  ack: { event: "ack" },
  nack: { event: "nack", delayMs: DELAY_MS, lastError: "Error: nacked", exhaustedReason: "retries_exhausted" },
  fail: { event: "fail", lastError: "Error: failed", reason: "rejected", category: "invoice" },
  release: { event: "release" },
} as const satisfies { [event: string]: Settlement };

/** What only the holder of a lease may do. */
type HolderEvent = keyof typeof SETTLEMENTS | "extend";
const HOLDER_EVENTS: readonly HolderEvent[] = ["ack", "nack", "fail", "release", "extend"];

/** Deliveries so far, and allowed in all: some left, all used, and one too many (the budget was lowered since). */
const BUDGETS = [
  { attempts: 2, maxAttempts: 4 },
  { attempts: 4, maxAttempts: 4 },
  { attempts: 5, maxAttempts: 4 },
];

interface Cell {
  readonly facts: JobFacts;
  readonly event: JobEvent;
}

const CELLS: readonly Cell[] = STATES.flatMap((state) =>
  BUDGETS.flatMap((budget) =>
    [MAX_RELEASES - 1, MAX_RELEASES].flatMap((releases) =>
      EVENTS.map((event) => ({ facts: { state, ...budget, releases }, event })),
    ),
  ),
);

/** Every cell of the state table, performed by the storage's own statements. */
export function transitionsContract(backend: Backend): void {
  describe("the state table", () => {
    const shared = shareBench(backend);

    for (const { facts, event } of CELLS) {
      const outcome = transition(facts, event);
      const queue = `${inWords(facts)}: ${event}`;
      if (outcome === undefined) {
        test(`${queue} is refused and changes nothing`, async () => {
          const bench = shared();
          const storage = bench.storage(queue);
          const lease = await bring(storage, facts, bench);
          // Whatever the row still says of a former delivery, its state decides.
          const leaseUntil = event === "expire" ? Date.now() - 1000 : FAR_FUTURE;
          await bench.edit(lease.id, { receipt: lease.receipt, leaseUntil });
          const before = await bench.exact(lease.id);
          expect(await perform(event, storage, lease, facts)).toBe("refused");
          expect(await bench.exact(lease.id)).toEqual(before);
          await expectRightCounts(bench, storage, queue);
        });
      } else {
        test(`${queue} leads to ${inWords(outcome)}`, async () => {
          const bench = shared();
          const storage = bench.storage(queue);
          const lease = await bring(storage, facts, bench);
          if (event === "expire") await bench.edit(lease.id, { leaseUntil: Date.now() - 1000 });
          const before = await onlyJob(bench, queue);
          const earliest = Date.now();
          const answer = await perform(event, storage, lease, facts);
          expect(answer).toBe(event === "claim" && outcome.state === "failed" ? "refused" : outcome.state);
          const after = await onlyJob(bench, queue);
          expect(after).toEqual({ ...before, ...factsOf(outcome), ...effect(event, outcome, after) });
          expect(after.updatedAt).toBeGreaterThanOrEqual(earliest);
          expect(after.updatedAt).toBeLessThanOrEqual(Date.now());
          await expectRightCounts(bench, storage, queue);
        });
      }
    }
  });

  describe.each(HOLDER_EVENTS)("%s is refused and changes nothing", (event) => {
    interface Held {
      readonly storage: Storage;
      readonly lease: Lease;
    }

    const shared = shareBench(backend);
    let queues = 0;

    /** A job under a lease, alone in its queue. */
    async function held(): Promise<Held> {
      const storage = shared().storage(`queue ${++queues}`);
      await put(storage);
      return { storage, lease: await takeOne(storage) };
    }

    async function expectRefused({ storage, lease }: Held): Promise<void> {
      const bench = shared();
      const ids = (await bench.jobs()).map(({ id }) => id);
      const before = await Promise.all(ids.map((id) => bench.exact(id)));
      await expect(call(event, storage, lease)).rejects.toBeInstanceOf(LeaseExpiredError);
      expect(await Promise.all(ids.map((id) => bench.exact(id)))).toEqual(before);
      await expectRightCounts(bench, storage, `queue ${queues}`);
    }

    test("with a wrong receipt", async () => {
      const { storage, lease } = await held();
      await expectRefused({ storage, lease: { ...lease, receipt: `${lease.receipt}x` } });
    });

    test("with the receipt of another job", async () => {
      const { storage, lease } = await held();
      await put(storage);
      const { receipt } = await takeOne(storage);
      await expectRefused({ storage, lease: { ...lease, receipt } });
    });

    test("for a job that does not exist", async () => {
      const { storage, lease } = await held();
      await expectRefused({ storage, lease: { ...lease, id: lease.id + 1000 } });
    });

    test("through another queue", async () => {
      const { lease } = await held();
      const { storage } = await held();
      await expectRefused({ storage, lease });
    });

    test("after the lease ended, even if nobody else has the job", async () => {
      const { storage, lease } = await held();
      await shared().age(LEASE_MS);
      await expectRefused({ storage, lease });
    });

    test("after the lease ended and the job became ready again", async () => {
      const { storage, lease } = await held();
      await shared().age(LEASE_MS);
      expect(await storage.reclaim()).toBe(1);
      await expectRefused({ storage, lease });
    });

    test("after somebody else claimed the job", async () => {
      const { storage, lease } = await held();
      await shared().age(LEASE_MS);
      expect(await takeOne(storage)).toMatchObject({ id: lease.id, attempt: 2 });
      await expectRefused({ storage, lease });
    });

    test("after the lease was made shorter and that was over", async () => {
      const { storage, lease } = await held();
      await storage.extend(lease, 1000);
      await shared().age(1000);
      await expectRefused({ storage, lease });
    });

    test.each(Object.values(SETTLEMENTS))("after $event had ended the delivery", async (settlement) => {
      const { storage, lease } = await held();
      await storage.settle(lease, settlement);
      await expectRefused({ storage, lease });
    });
  });
}

/** Makes the queue's only job one of which the facts are true; returns its last lease. */
async function bring(storage: Storage, facts: JobFacts, bench: Bench): Promise<Lease> {
  await put(storage, "payload", { jobId: "job", maxAttempts: 100 });
  const lease = await takeOne(storage);
  if (facts.state === "ready") await storage.settle(lease, { ...SETTLEMENTS.nack, delayMs: 0 });
  if (facts.state === "acked") await storage.settle(lease, SETTLEMENTS.ack);
  if (facts.state === "failed") await storage.settle(lease, SETTLEMENTS.fail);
  const { attempts, maxAttempts, releases } = facts;
  const former = { lastError: "Error: earlier", failureCategory: "earlier" };
  await bench.edit(lease.id, { attempts, maxAttempts, releases, ...former });
  return lease;
}

/** Has the storage do it; resolves to the state that it reports, or to "refused". */
async function perform(
  event: JobEvent,
  storage: Storage,
  lease: Lease,
  { attempts, maxAttempts }: JobFacts,
): Promise<JobState | "refused"> {
  switch (event) {
    case "claim": {
      const [delivery] = attempts < maxAttempts ? await take(storage) : await takeWithBudget(storage, maxAttempts);
      if (delivery === undefined) return "refused";
      expect(delivery).toMatchObject({ id: lease.id, attempt: attempts + 1, jobId: "job" });
      expect(delivery.receipt).not.toBe(lease.receipt);
      return "processing";
    }
    case "expire":
      return (await storage.reclaim()) === 0 ? "refused" : attempts < maxAttempts ? "ready" : "failed";
    case "replay":
      try {
        expect(await storage.retryFailed({ id: lease.id })).toBe(1);
        return "ready";
      } catch (error) {
        expect(error).toBeInstanceOf(NotFoundError);
        return "refused";
      }
    default:
      try {
        return await call(event, storage, lease);
      } catch (error) {
        expect(error).toBeInstanceOf(LeaseExpiredError);
        return "refused";
      }
  }
}

/** A ready job has a budget that is spent when a consumer brings a smaller one. */
async function takeWithBudget(storage: Storage, maxAttempts: number): Promise<Lease[]> {
  const nothing = (): void => undefined;
  const consumer = storage.consume(
    { slots: 1, leaseMs: LEASE_MS, heartbeatMs: false, timeoutMs: undefined, graceMs: 0, maxAttempts },
    { leaseLost: nothing, leaseRenewed: nothing, timedOut: nothing, overdue: nothing },
  );
  const delivery = await consumer.claim(0, { waitMs: 0 });
  consumer.close();
  return delivery === undefined ? [] : [delivery];
}

async function call(event: HolderEvent, storage: Storage, lease: Lease): Promise<JobState> {
  if (event !== "extend") return storage.settle(lease, SETTLEMENTS[event]);
  await storage.extend(lease, EXTENSION_MS);
  return "processing";
}

function factsOf({ state, attempts, maxAttempts, releases }: JobFacts): JobFacts {
  return { state, attempts, maxAttempts, releases };
}

/** What an event does to a row, beside the facts. Whatever is not named here keeps its value. */
function effect(event: JobEvent, outcome: JobOutcome, { updatedAt, receipt }: StoredJob): Partial<StoredJob> {
  const over = { updatedAt, receipt: null, leaseUntil: null };
  const ready = { availableAt: updatedAt, failureReason: null };
  const failed = { failureReason: outcome.reason ?? null };
  switch (event) {
    case "claim":
      return outcome.state === "failed"
        ? { updatedAt, ...failed }
        : { updatedAt, receipt, leaseUntil: updatedAt + LEASE_MS };
    case "extend":
      return { updatedAt, leaseUntil: updatedAt + EXTENSION_MS };
    case "ack":
      return over;
    case "nack": {
      const said = { lastError: SETTLEMENTS.nack.lastError, failureCategory: null };
      return outcome.state === "ready"
        ? { ...over, ...said, ...ready, availableAt: updatedAt + DELAY_MS }
        : { ...over, ...said, ...failed, availableAt: updatedAt };
    }
    case "fail": {
      const { lastError, reason, category } = SETTLEMENTS.fail;
      return { ...over, lastError, failureReason: reason, failureCategory: category };
    }
    case "release":
      return outcome.state === "ready" ? { ...over, ...ready } : { ...over, ...failed, availableAt: updatedAt };
    case "replay":
      return { ...over, ...ready, lastError: null, failureCategory: null };
    case "expire":
      return { ...over, ...(outcome.state === "ready" ? ready : failed) };
  }
}

function inWords({ state, attempts, maxAttempts, releases }: JobFacts): string {
  return `${state} (delivery ${attempts} of ${maxAttempts}, ${releases} releases)`;
}
