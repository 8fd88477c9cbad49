import { EnqueueItem, type Lease, type SimpleQueue } from "localqueue";

/** How long the leases of the queue last that a change is prepared on. */
export const HOUR_MS = 3_600_000;

/** Something that changes a file in one transaction: what is to be there before, and what the engine is told to do. */
export interface Change {
  readonly name: string;
  readonly prepare: (queue: SimpleQueue) => Promise<object>;
}

const entry = { jobId: null, delayMs: 0, maxAttempts: 4 };
const claim = { op: "claim", limit: 2, leaseMs: HOUR_MS, waitMs: 0 };
const event = { payload: "e", jobId: "effect", queues: ["default", "other"], maxAttempts: 4 };
const events = { bytes: 2, events: [{ ...event, identity: { key: "key", fingerprint: "print" } }] };

async function held(queue: SimpleQueue, maxRetries = 3): Promise<Lease> {
  await queue.putMany([new EnqueueItem("held", { maxRetries }), "other"]);
  const { id, receipt } = await queue.getNowait();
  return { id, receipt };
}

async function deadLetters(queue: SimpleQueue): Promise<number> {
  await queue.putMany(["dead", "dead too", "waits"]);
  const jobs = await queue.getMany(2);
  for (const job of jobs) await job.fail({ lastError: "no", category: "mail" });
  return jobs[0]?.id as number;
}

const settle =
  (move: object, more: object = {}, maxRetries?: number) =>
  async (queue: SimpleQueue): Promise<object> => ({
    command: { op: "settle", lease: await held(queue, maxRetries), move, ...more },
  });
const alter =
  (verb: string) =>
  async (queue: SimpleQueue): Promise<object> => ({ command: { op: "alter", verb, job: await deadLetters(queue) } });
const sweep =
  (request: object) =>
  async (queue: SimpleQueue): Promise<object> => {
    await deadLetters(queue);
    await (await queue.getNowait()).ack();
    return { command: { op: "sweep", sweep: request } };
  };
const nack = { event: "nack", delayMs: 5_000, lastError: "no", exhaustedReason: "retries_exhausted" };
const backoff = { initialMs: 1_000, maxMs: 9_000, lastError: "later", exhaustedReason: "retries_exhausted" };

/** One for each transition, and for all else that is written in one transaction. */
export const CHANGES: readonly Change[] = [
  { name: "put", prepare: async () => ({ command: { op: "put", entry: { ...entry, jobId: "one", delayMs: 5_000 } } }) },
  { name: "putMany", prepare: async () => ({ command: { op: "put", entry, copies: 3 } }) },
  {
    name: "a put into a queue with a limit",
    prepare: async () => ({ command: { op: "put", entry, maxPending: 5, waitMs: 0 } }),
  },
  { name: "dispatch", prepare: async () => ({ command: { op: "dispatch", ...events } }) },
  {
    name: "claim",
    prepare: async (queue) => {
      await queue.putMany([1, 2, 3]);
      return { command: claim };
    },
  },
  {
    name: "a claim that ends leases",
    prepare: async (queue) => {
      await queue.putMany([new EnqueueItem(1, { maxRetries: 0 }), 2, 3]);
      for (const job of await queue.getMany(3)) await job.extendLease(1);
      return { command: claim };
    },
  },
  {
    name: "reclaimExpiredLeases",
    prepare: async (queue) => {
      for (const job of [await held(queue), await queue.getNowait()]) await queue.extendLease(job, 1);
      return { command: { op: "reclaim" } };
    },
  },
  { name: "ack", prepare: settle({ event: "ack" }) },
  { name: "an ack with what its handler emitted", prepare: settle({ event: "ack" }, { emit: events }) },
  { name: "nack", prepare: settle(nack) },
  { name: "the last nack", prepare: settle(nack, {}, 0) },
  { name: "fail", prepare: settle({ event: "fail", lastError: "no", reason: "rejected", category: "mail" }) },
  { name: "release", prepare: settle({ event: "release" }) },
  { name: "a release with a delay", prepare: settle({ event: "release", backoff }) },
  {
    name: "extendLease",
    prepare: async (queue) => ({ command: { op: "extend", lease: await held(queue), ms: 2 * HOUR_MS } }),
  },
  {
    name: "the renewal of a worker's lease",
    prepare: async (queue) => ({ renew: { lease: await held(queue), leaseMs: 2 * HOUR_MS } }),
  },
  {
    name: "remove",
    prepare: async (queue) => ({ command: { op: "alter", verb: "remove", job: (await queue.put("waits")).id } }),
  },
  { name: "retryFailed of one", prepare: alter("replay") },
  { name: "purgeFailed of one", prepare: alter("discard") },
  { name: "retryFailed", prepare: sweep({ kind: "retryFailed", category: "mail" }) },
  { name: "purgeFailed", prepare: sweep({ kind: "purgeFailed", reason: "explicit_permanent_failure" }) },
  // Without the dead letters: for those it may take a second transaction.
  { name: "purge", prepare: sweep({ kind: "purge", olderThanMs: 0, includeFailed: false }) },
];
