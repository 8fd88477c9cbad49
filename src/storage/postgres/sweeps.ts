import { monotonicNow } from "../../timers.ts";
import { refusal } from "../refusals.ts";
import type { FailedFilter, PurgeRequest } from "../storage.ts";
import { loadOf } from "./alterations.ts";
import { toStorageError } from "./failures.ts";
import { firstPause, longer, pauseFor, type Runner, troubleOf } from "./runner.ts";
import type { Statements } from "./statements.ts";
import type { Transaction } from "./transaction.ts";

/** How many rows a slice looks at; each is a transaction of its own, so that others can work in between. */
const SLICE_ROWS = 1000;
const PATIENCE_MS = 30_000;
/** Higher than any id. */
const NO_END = "9223372036854775807";

/** What one slice has done. */
interface Slice {
  /** The highest id that it looked at; `undefined` = there were no more rows. */
  readonly last: number | undefined;
  readonly changed: number;
  /** When the row with that id was created. */
  readonly created: number | undefined;
  /** There is no room for more. */
  readonly full?: boolean;
}

export interface SweepContext {
  readonly runner: Runner;
  readonly sql: Statements;
  readonly queue: string;
  /** Told after each slice that changed something. */
  readonly changed: (queue: string) => void;
  /** Ends the sweep between two slices. */
  readonly signal: AbortSignal;
}

type Visit = (transaction: Transaction, after: number, end: number | string) => Promise<Slice>;

/** Walks along rows, lowest id first; returns how many it changed. */
async function walk(
  context: SweepContext,
  end: number | string,
  visit: Visit,
  isOver: (slice: Slice) => boolean = () => false,
): Promise<{ changed: number; full: boolean }> {
  let changed = 0;
  for (let after = 0; ; ) {
    const slice = await inTransaction(context, (transaction) => visit(transaction, after, end));
    changed += slice.changed;
    if (slice.changed > 0) context.changed(context.queue);
    if (slice.full) return { changed, full: true };
    if (slice.last === undefined || isOver(slice)) return { changed, full: false };
    if (context.signal.aborted) throw context.signal.reason;
    after = slice.last;
  }
}

async function inTransaction<T>(
  { runner, signal }: SweepContext,
  work: (transaction: Transaction) => Promise<T>,
): Promise<T> {
  const latest = monotonicNow() + PATIENCE_MS;
  for (let pause = firstPause(); ; pause = longer(pause)) {
    try {
      return await runner.run({ lockMs: PATIENCE_MS, fsync: undefined, endsAt: () => latest }, work);
    } catch (error) {
      const trouble = troubleOf(error);
      if (!runner.isTransient(trouble) || monotonicNow() >= latest) throw toStorageError(error, runner.place);
      if (signal.aborted) throw signal.reason;
      if (trouble === "gone") await pauseFor(pause);
    }
  }
}

/** Deletes done jobs, and dead letters if so asked, that were last changed before then. */
export async function purge(context: SweepContext, { olderThanMs, includeFailed }: PurgeRequest): Promise<number> {
  const { last, now } = await bounds(context);
  const before = now - Math.round(olderThanMs);
  const acked = await walk(context, last, purgingAcked(context, before));
  if (!includeFailed) return acked.changed;
  return acked.changed + (await walk(context, NO_END, purgingFailed(context, {}, before))).changed;
}

/** Deletes the dead letters of a cause. */
export async function purgeFailed(context: SweepContext, filter: FailedFilter): Promise<number> {
  return (await walk(context, NO_END, purgingFailed(context, filter, null))).changed;
}

/** Makes the dead letters of a cause ready, as long as there is room. */
export async function replayFailed(
  context: SweepContext,
  filter: FailedFilter,
  limit: number | undefined,
): Promise<number> {
  const { sql, queue } = context;
  const cause = causeOf(filter);
  const { last } = await bounds(context);
  const { changed, full } = await walk(context, last, async (transaction, after, end) => {
    let most = SLICE_ROWS;
    if (limit !== undefined) most = Math.min(most, Math.max(0, limit - (await loadOf(sql, transaction, queue))));
    if (most === 0) {
      const left = await transaction.query(sql.failedLeft, [queue, after, end, 1, ...cause]);
      return { last: undefined, changed: 0, created: undefined, full: left.length > 0 };
    }
    return sliceOf(await transaction.query(sql.replayFailed, [queue, after, end, most, ...cause]));
  });
  if (full && changed === 0) throw refusal("full", undefined);
  return changed;
}

/** Deletes what is older than it is to be kept: ends at the first row that was created after that. */
export async function retain(
  context: SweepContext,
  { ackedMs, failedMs }: { readonly ackedMs?: number | undefined; readonly failedMs?: number | undefined },
): Promise<void> {
  const { last, now } = await bounds(context);
  // Ids and times of creation grow together, unless the clock was wrong once: a row of the future means nothing.
  const isOver =
    (before: number) =>
    ({ created = 0 }: Slice): boolean =>
      created >= before && created <= now;
  if (ackedMs !== undefined) {
    const before = now - Math.round(ackedMs);
    await walk(context, last, purgingAcked(context, before), isOver(before));
  }
  if (failedMs !== undefined) {
    const before = now - Math.round(failedMs);
    await walk(context, last, purgingFailed(context, {}, before), isOver(before));
  }
}

function purgingAcked({ sql, queue }: SweepContext, before: number): Visit {
  return async (transaction, after, end) =>
    sliceOf(await transaction.query(sql.purgeAcked, [queue, after, end, SLICE_ROWS, before]));
}

function causeOf({ reason, category }: FailedFilter): (string | null)[] {
  return [reason ?? null, category ?? null];
}

function purgingFailed({ sql, queue }: SweepContext, filter: FailedFilter, before: number | null): Visit {
  return async (transaction, after, end) =>
    sliceOf(await transaction.query(sql.purgeFailed, [queue, after, end, SLICE_ROWS, ...causeOf(filter), before]));
}

async function bounds(context: SweepContext): Promise<{ last: number; now: number }> {
  const [row] = await inTransaction(context, (transaction) => transaction.query(context.sql.lastId));
  return { last: row?.["last"] as number, now: row?.["now"] as number };
}

function sliceOf([row]: readonly { readonly [column: string]: unknown }[]): Slice {
  return {
    last: (row?.["last"] as number | null) ?? undefined,
    changed: row?.["changed"] as number,
    created: (row?.["created"] as number | null) ?? undefined,
  };
}
