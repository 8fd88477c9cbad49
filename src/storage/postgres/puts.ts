import type { Enqueued, Entry } from "../storage.ts";
import type { Outcome } from "./lane.ts";
import type { Order } from "./order.ts";
import { pack } from "./payloads.ts";
import type { Row } from "./rows.ts";
import type { Statements } from "./statements.ts";
import { Crossed, type Transaction } from "./transaction.ts";

/** A job as it will be stored, whatever the caller does to its buffer after the call. */
export interface NewJob {
  readonly payload: Buffer;
  readonly jobId: string | undefined;
  readonly delayMs: number;
  readonly maxAttempts: number;
  readonly context: string | undefined;
}

export type PutOrder = Order<readonly NewJob[], Enqueued[]>;

export function ownJob({ payload, jobId, delayMs, maxAttempts, context }: Entry): NewJob {
  // Not a copy of a view: whatever else is in its memory.
  const own =
    typeof payload === "string" ? Buffer.from(payload) : Buffer.from(Uint8Array.prototype.slice.call(payload));
  return { payload: own, jobId, delayMs, maxAttempts, context };
}

interface QueuedJob extends NewJob {
  readonly queue: string;
}

/** Adds the jobs of all callers by one statement, and looks up those that are known by another. */
export async function performPuts(
  sql: Statements,
  transaction: Transaction,
  orders: readonly PutOrder[],
): Promise<Outcome<Enqueued[]>> {
  const jobs = orders.flatMap(({ input, origin: { queue } }) => input.map((job) => ({ ...job, queue })));
  const enqueued = await enqueue(sql, transaction, jobs);
  const next = enqueued.values();
  const answers = orders.map(({ input }) => input.map(() => next.next().value as Enqueued));
  return { answers, stirred: new Set(orders.map(({ origin }) => origin.queue)) };
}

async function enqueue(sql: Statements, transaction: Transaction, jobs: readonly QueuedJob[]): Promise<Enqueued[]> {
  if (jobs.length === 0) return [];
  const { bytes, starts, lengths } = pack(jobs.map(({ payload }) => payload));
  const adding = transaction.query(sql.put, [
    bytes,
    jobs.map(({ queue }) => queue),
    starts,
    lengths,
    jobs.map(({ maxAttempts }) => maxAttempts),
    jobs.map(({ delayMs }) => Math.round(delayMs)),
    jobs.map(({ jobId = null }) => jobId),
    jobs.map(({ context = null }) => context),
  ]);
  const named = jobs.filter(({ jobId }) => jobId !== undefined);
  // Only a statement of its own sees what somebody else has just committed.
  const looking = named.length === 0 ? [] : transaction.query(sql.known, queuesAndIds(named));
  return assign(jobs, await adding, await looking);
}

export function queuesAndIds(
  jobs: readonly { readonly queue: string; readonly jobId: string | undefined }[],
): unknown[] {
  return [jobs.map(({ queue }) => queue), jobs.map(({ jobId }) => jobId)];
}

/** Which rows are which jobs: those that were added have their ids in the order of the jobs. */
function assign(jobs: readonly QueuedJob[], added: readonly Row[], known: readonly Row[]): Enqueued[] {
  const nameless = added.filter((row) => row["job_id"] === null);
  const fresh = new Set(added.filter((row) => row["job_id"] !== null).map(keyOf));
  const ids = new Map(known.map((row) => [keyOf(row), row["id"] as number]));
  if (nameless.length !== jobs.filter(({ jobId }) => jobId === undefined).length) throw new Crossed();
  let next = 0;
  return jobs.map(({ queue, jobId }) => {
    if (jobId === undefined) return { id: nameless[next++]?.["id"] as number, inserted: true };
    const key = keyOf({ queue, job_id: jobId });
    const id = ids.get(key);
    // It was deleted before it could be looked up: another attempt will add it.
    if (id === undefined) throw new Crossed();
    // The first of several with this name.
    return { id, inserted: fresh.delete(key) };
  });
}

function keyOf({ queue, job_id: jobId }: Row): string {
  return `${queue}\0${jobId}`;
}
