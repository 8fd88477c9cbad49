import { type JobState, STATES } from "../../state.ts";
import { HeadStarts } from "../head-start.ts";
import type { Delivery, Enqueued, FailedFilter, Lease, QueueStats, Settlement } from "../storage.ts";
import { acknowledgeSeveral } from "./acknowledge.ts";
import type { Connection } from "./connection.ts";
import { dequeue, dequeueSeveral, type Terms } from "./dequeue.ts";
import type { Row } from "./driver.ts";
import { enqueue } from "./enqueue.ts";
import { Conflict, fanOut, link } from "./fan-out.ts";
import { Load, loadOf } from "./load.ts";
import type { NewEvent, NewJob } from "./protocol.ts";

/** What a queue holds for a claim, and when (milliseconds since the epoch) there will be more. */
export interface Outlook {
  readonly ready: boolean;
  readonly due: number;
  readonly expiry: number;
}

/** Rows with an id after the one, up to the other. */
export interface Stretch {
  readonly after: number;
  readonly last: number;
}

interface FailedCriteria extends FailedFilter {
  /** Only those that were last changed before then. */
  readonly before?: number | undefined;
}

const AT_ONCE = { initialMs: 0, maxMs: 0, lastError: null, exhaustedReason: "retries_exhausted" } as const;

type Counter = Record<JobState, number>;

/**
 * The verbs of the state machine on one connection, inside the transaction that the caller has begun. The clock is
 * read here, hence after the wait for the lock. Moves between states are counted as they happen.
 */
export class Transitions {
  readonly #connection: Connection;
  readonly #clock: () => number;
  /** By queue: until when, for all we know, no delayed job is due and no lease ends. */
  readonly #quietUntil = new Map<string, number>();
  readonly #moves: { queue: string; from: JobState | undefined; to: JobState | undefined; jobs: number }[] = [];
  readonly #load = new Load();
  readonly #headStarts = new HeadStarts();

  constructor(connection: Connection, clock: () => number) {
    this.#connection = connection;
    this.#clock = clock;
  }

  get #sql(): Connection["statements"] {
    return this.#connection.statements;
  }

  now(): number {
    return Math.round(this.#clock());
  }

  /** Adds jobs, in their order, unless their `jobId` is known. */
  put(queue: string, jobs: readonly NewJob[], now: number): Enqueued[] {
    for (const { delayMs } of jobs) if (delayMs > 0) this.#stirsAt(queue, now + delayMs);
    return enqueue(this.#sql, queue, jobs, now, (added) => this.#moved(queue, undefined, "ready", added));
  }

  /** Adds events to their queues. Throws a `Conflict`. */
  dispatch(events: readonly NewEvent[], now: number): Enqueued[][] {
    const added = (queue: string): void => this.#moved(queue, undefined, "ready", 1);
    return events.map((event) => fanOut(this.#sql, event, now, added));
  }

  /** The same for what a handler made of a job. */
  emit(parent: number, events: readonly NewEvent[], now: number): void {
    link(this.#sql, parent, this.dispatch(events, now));
  }

  knows(queue: string, jobId: string): boolean {
    return this.#sql.findByJobId.get({ queue, jobId }) !== undefined;
  }

  /** How many jobs are ready or processing, what this transaction has done so far included. */
  load(queue: string): number {
    return this.#load.of(queue, () => {
      const { ready, processing } = this.stats(queue);
      // Triggers keep the counts as rows change; else they lack what is to be written at the end.
      const unwritten = this.#connection.countsAreTriggered ? [] : this.#moves.filter((move) => move.queue === queue);
      return unwritten.reduce((sum, { from, to, jobs }) => sum + loadOf(from, to) * jobs, ready + processing);
    });
  }

  /** Whether so many more jobs fit into a queue that may hold `limit` of them, ready or processing. */
  hasRoom(queue: string, limit: number, jobs: number): boolean {
    return this.load(queue) + jobs <= limit;
  }

  look(queue: string): Outlook {
    const row = this.#sql.look.get({ queue }) as Row;
    const due = this.#headStarts.dueHere(queue, (row["due"] as number | null) ?? Number.POSITIVE_INFINITY);
    const expiry = (row["expiry"] as number | null) ?? Number.POSITIVE_INFINITY;
    this.#quietUntil.set(queue, Math.min(due, expiry));
    return { ready: row["ready"] === 1, due, expiry };
  }

  /** Whether a look would show nothing but ready jobs: nothing is due and no lease ends before `now`. */
  isQuiet(queue: string, now: number): boolean {
    return (this.#quietUntil.get(queue) ?? Number.NEGATIVE_INFINITY) > now;
  }

  /** What was seen is no longer to be relied on: others have written, or what we wrote was undone. */
  startle(): void {
    this.#quietUntil.clear();
  }

  #stirsAt(queue: string, at: number): void {
    if (this.isQuiet(queue, at)) this.#quietUntil.set(queue, at);
  }

  /** Makes due jobs ready, at most a slice of them; returns their number. */
  promote(queue: string): number {
    return this.#sql.promote.run({ queue, now: this.now() }).changes;
  }

  /** Ends leases that ran out, at most a slice of them; returns their number. */
  expire(queue: string, budget: number | null): number {
    const rows = this.#sql.expire.all({ queue, budget, now: this.now() });
    for (const row of rows) this.#moved(queue, "processing", stateOf(row), 1);
    return rows.length;
  }

  /** Fails the first ready jobs as long as they have used up the budget, at most `limit`; returns their number. */
  exhaust(queue: string, budget: number, limit: number): number {
    const now = this.now();
    let jobs = 0;
    while (jobs < limit && this.#sql.exhaust.run({ queue, budget, now }).changes > 0) jobs++;
    this.#moved(queue, "ready", "failed", jobs);
    return jobs;
  }

  /** Claims the first ready job. */
  claim(queue: string, terms: Terms): Delivery | undefined {
    const now = this.now();
    const claimed = dequeue(this.#sql, queue, terms, now);
    if (claimed !== undefined) this.#claimed(queue, 1, now + terms.leaseMs);
    return claimed;
  }

  /** Claims the first ready jobs, at most `limit`, as far as that can be done together: maybe none. */
  claimSeveral(queue: string, terms: Terms, limit: number): Delivery[] {
    const now = this.now();
    const claimed = dequeueSeveral(this.#sql, queue, terms, limit, now);
    this.#claimed(queue, claimed.length, now + terms.leaseMs);
    return claimed;
  }

  #claimed(queue: string, jobs: number, leaseUntil: number): void {
    this.#moved(queue, "ready", "processing", jobs);
    this.#stirsAt(queue, leaseUntil);
  }

  /** Ends a delivery; `undefined` = the lease is lost, and nothing was changed. */
  settle(queue: string, { id, receipt }: Lease, move: Settlement, now: number = this.now()): JobState | undefined {
    const held = { id, queue, receipt, now };
    const state = this.#settle(held, move);
    if (state !== undefined) this.#moved(queue, "processing", state, 1);
    return state;
  }

  #settle(held: { id: number; queue: string; receipt: string; now: number }, move: Settlement): JobState | undefined {
    switch (move.event) {
      case "ack":
        return this.#sql.ack.run(held).changes === 1 ? "acked" : undefined;
      case "nack":
        if (move.delayMs > 0) this.#stirsAt(held.queue, held.now + move.delayMs);
        return stateOfOnly(
          this.#sql.nack.all({
            ...held,
            delayMs: move.delayMs,
            lastError: move.lastError ?? null,
            reason: move.exhaustedReason,
          }),
        );
      case "fail": {
        const { lastError = null, reason, category = null } = move;
        return this.#sql.fail.run({ ...held, lastError, reason, category }).changes === 1 ? "failed" : undefined;
      }
      case "release": {
        const { initialMs, maxMs, lastError, exhaustedReason } = move.backoff ?? AT_ONCE;
        this.#stirsAt(held.queue, held.now + Math.min(initialMs, maxMs));
        const rows = this.#sql.release.all({ ...held, initialMs, maxMs, lastError, reason: exhaustedReason });
        if (move.backoff) for (const row of rows) this.#headStarts.give(held.queue, row["available_at"] as number);
        return stateOfOnly(rows);
      }
    }
  }

  /** Acknowledges deliveries of a queue, all of them: throws if a lease is lost. */
  acknowledge(queue: string, leases: readonly Lease[], now: number): void {
    acknowledgeSeveral(this.#sql, queue, leases, now);
    this.#moved(queue, "processing", "acked", leases.length);
  }

  /** Returns the new end of the lease; `undefined` = the lease is lost. */
  extend(queue: string, { id, receipt }: Lease, ms: number, now: number = this.now()): number | undefined {
    this.#stirsAt(queue, now + ms);
    return this.#sql.extend.run({ id, queue, receipt, ms, now }).changes === 1 ? now + ms : undefined;
  }

  /** As `extend`, and an expired lease that nobody took is revived. */
  renew(queue: string, { id, receipt }: Lease, ms: number): number | undefined {
    const now = this.now();
    this.#stirsAt(queue, now + ms);
    return this.#sql.renew.run({ id, queue, receipt, ms, now }).changes === 1 ? now + ms : undefined;
  }

  markOverdue(queue: string, { id, receipt }: Lease): void {
    this.#sql.markOverdue.run({ id, queue, receipt });
  }

  /** Deletes a job that waits to be delivered; returns whether there was one. */
  remove(queue: string, id: number): boolean {
    const { changes } = this.#sql.remove.run({ queue, id });
    this.#moved(queue, "ready", undefined, changes);
    return changes > 0;
  }

  /** Deletes a dead letter; returns whether there was one. */
  discard(queue: string, id: number): boolean {
    const { changes } = this.#sql.discard.run({ queue, id });
    this.#moved(queue, "failed", undefined, changes);
    return changes > 0;
  }

  isFailed(queue: string, id: number): boolean {
    return this.#sql.isFailed.get({ queue, id }) !== undefined;
  }

  /** Makes a dead letter ready, with a fresh budget; returns whether there was one. */
  replay(queue: string, id: number, now: number): boolean {
    if (this.#sql.replay.run({ queue, id, now }).changes === 0) return false;
    this.#sql.reopenExecutions.run({ id });
    this.#moved(queue, "failed", "ready", 1);
    return true;
  }

  /** The highest id, of all rows or of a queue's dead letters; 0 = there are none. */
  lastId(failedOf?: string): number {
    const row =
      failedOf === undefined
        ? this.#sql.lastOfAll.get({ after: 0 })
        : this.#sql.lastFailed.get({ queue: failedOf, after: 0 });
    return (row?.["last"] as number | null) ?? 0;
  }

  /** The end of a stretch of so many rows, all or a queue's dead letters; `undefined` = there are none left. */
  stretch(after: number, end: number, rows: number, failedOf?: string): { last: number; bytes: number } | undefined {
    const row =
      failedOf === undefined
        ? this.#sql.stretchOfAll.get({ after, end, rows })
        : this.#sql.stretchOfFailed.get({ queue: failedOf, after, end, rows });
    const last = row?.["last"] as number | null;
    return last === null ? undefined : { last, bytes: row?.["bytes"] as number };
  }

  /** Deletes the acknowledged jobs of a stretch that were last changed before then; returns their number. */
  purgeAcked(queue: string, { after, last }: Stretch, before: number): number {
    const { changes } = this.#sql.purgeAcked.run({ queue, after, last, before });
    this.#moved(queue, "acked", undefined, changes);
    return changes;
  }

  /** Deletes the dead letters of a stretch that are of the cause and old enough; returns their number. */
  purgeFailed(queue: string, { after, last }: Stretch, { reason, category, before }: FailedCriteria): number {
    const criteria = { reason: reason ?? null, category: category ?? null, before: before ?? null };
    const { changes } = this.#sql.purgeFailed.run({ queue, after, last, ...criteria });
    this.#moved(queue, "failed", undefined, changes);
    return changes;
  }

  /** The dead letters of a stretch that are of the cause. */
  failedIn(queue: string, { after, last }: Stretch, { reason, category }: FailedFilter): number[] {
    const cause = { reason: reason ?? null, category: category ?? null };
    return this.#sql.failedIn.all({ queue, after, last, ...cause }).map(({ id }) => id as number);
  }

  createdAt(id: number): number {
    return (this.#sql.createdAt.get({ id })?.["created"] as number | undefined) ?? 0;
  }

  stats(queue: string): QueueStats {
    const row = this.#sql.stats.get({ queue });
    const count = (name: JobState): number => Number(row?.[name] ?? 0);
    return { ready: count("ready"), processing: count("processing"), acked: count("acked"), failed: count("failed") };
  }

  /** Where the count of moves stands; `forget` returns to it when a step is undone. */
  get moves(): number {
    return this.#moves.length;
  }

  /** Does all of the work, or none if it throws; returns the conflict that stopped it. */
  atomically(work: () => void): Conflict | undefined {
    const moves = this.#moves.length;
    try {
      this.#connection.atomically(work);
      return undefined;
    } catch (error) {
      this.forget(moves);
      this.startle();
      if (error instanceof Conflict) return error;
      throw error;
    }
  }

  forget(moves: number): void {
    this.#moves.length = moves;
    this.#load.forget();
  }

  /** Writes the moves of this transaction into the table of counts, once per queue. */
  writeCounts(): void {
    const queues = new Map<string, Counter>();
    for (const { queue, from, to, jobs } of this.#moves) {
      let counter = queues.get(queue);
      if (counter === undefined) {
        counter = { ready: 0, processing: 0, acked: 0, failed: 0 };
        queues.set(queue, counter);
      }
      if (from !== undefined) counter[from] -= jobs;
      if (to !== undefined) counter[to] += jobs;
    }
    this.#moves.length = 0;
    this.#load.forget();
    if (this.#connection.countsAreTriggered) return;
    const now = this.now();
    for (const [queue, counter] of queues) this.#sql.count.run({ queue, ...counter, now });
  }

  /** From nothing when a job is added, to nothing when it is deleted. */
  #moved(queue: string, from: JobState | undefined, to: JobState | undefined, jobs: number): void {
    if (jobs === 0) return;
    this.#moves.push({ queue, from, to, jobs });
    this.#load.moved(queue, loadOf(from, to) * jobs);
  }
}

function stateOf(row: Row): JobState {
  return STATES[row["status"] as number] as JobState;
}

function stateOfOnly(rows: readonly Row[]): JobState | undefined {
  return rows[0] === undefined ? undefined : stateOf(rows[0]);
}
