import { randomUUID } from "node:crypto";
import { type JobState, STATES } from "../../state.ts";
import type { Delivery, Enqueued, Lease, QueueStats, Settlement } from "../storage.ts";
import type { Connection } from "./connection.ts";
import type { Row } from "./driver.ts";
import type { NewJob } from "./protocol.ts";

/** What a queue holds for a claim, and when (milliseconds since the epoch) there will be more. */
export interface Outlook {
  readonly ready: boolean;
  readonly due: number;
  readonly expiry: number;
}

/** The sign for what is not UTF-8, and a byte order mark at the beginning, which a decoder would take off. */
const UNFAITHFUL = /\uFFFD|^\uFEFF/;

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
  readonly #moves: { queue: string; from: JobState | undefined; to: JobState; jobs: number }[] = [];

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

  put(queue: string, job: NewJob, now: number): Enqueued {
    const { payload, jobId, delayMs, maxAttempts } = job;
    if (delayMs > 0) this.#stirsAt(queue, now + delayMs);
    const { changes, lastInsertRowid } = this.#sql.put.run({ queue, payload, maxAttempts, delayMs, jobId, now });
    if (changes > 0) {
      this.#moved(queue, undefined, "ready", 1);
      return { id: lastInsertRowid, inserted: true };
    }
    const row = this.#sql.findByJobId.get({ queue, jobId }) as Row;
    return { id: row["id"] as number, inserted: false };
  }

  look(queue: string): Outlook {
    const row = this.#sql.look.get({ queue }) as Row;
    const due = (row["due"] as number | null) ?? Number.POSITIVE_INFINITY;
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

  /** Claims the first ready job; `undefined` = there is none. */
  claim(queue: string, leaseMs: number, budget: number | null, text = false): Delivery | undefined {
    const now = this.now();
    const receipt = randomUUID();
    // Not `get`: it would leave the statement unfinished.
    const [row] = this.#sql.claim.all({ queue, leaseMs, budget, now, receipt, text: text ? 1 : 0 });
    if (row === undefined) return undefined;
    this.#moved(queue, "ready", "processing", 1);
    this.#stirsAt(queue, now + leaseMs);
    return {
      id: row["id"] as number,
      receipt,
      payload: this.#faithful(row),
      attempt: row["attempts"] as number,
      jobId: (row["job_id"] as string | null) ?? undefined,
      enqueuedAt: row["created_at"] as number,
      leaseUntil: now + leaseMs,
    };
  }

  /** The payload of a claimed row: bytes where text would not be the same, since something in it is not UTF-8. */
  #faithful(row: Row): Uint8Array | string {
    const payload = row["payload"] as Uint8Array | string;
    if (typeof payload !== "string" || !UNFAITHFUL.test(payload)) return payload;
    const [kept] = this.#sql.payload.all({ id: row["id"] as number });
    return kept?.["payload"] as Uint8Array;
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
      case "release":
        return stateOfOnly(this.#sql.release.all(held));
    }
  }

  /** Returns the new end of the lease; `undefined` = the lease is lost. */
  extend(queue: string, { id, receipt }: Lease, ms: number): number | undefined {
    const now = this.now();
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

  stats(queue: string): QueueStats {
    const row = this.#sql.stats.get({ queue });
    const count = (name: JobState): number => Number(row?.[name] ?? 0);
    return { ready: count("ready"), processing: count("processing"), acked: count("acked"), failed: count("failed") };
  }

  /** Whether a row that `put` returned is in the file. */
  wasPut(queue: string, id: number, { payload, jobId }: NewJob, now: number): boolean {
    return this.#sql.wasPut.get({ id, queue, now, jobId, payload }) !== undefined;
  }

  /** Whether a delivery that was held has been ended at that very moment. */
  wasSettled({ id }: Lease, now: number): boolean {
    return this.#sql.wasSettled.get({ id, now }) !== undefined;
  }

  isHeld({ id, receipt }: Lease, until?: number): boolean {
    const row =
      until === undefined ? this.#sql.isHeld.get({ id, receipt }) : this.#sql.isHeldUntil.get({ id, receipt, until });
    return row !== undefined;
  }

  mark(): void {
    this.#sql.mark.run();
  }

  /** Where the count of moves stands; `forget` returns to it when a step is undone. */
  get moves(): number {
    return this.#moves.length;
  }

  forget(moves: number): void {
    this.#moves.length = moves;
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
      counter[to] += jobs;
    }
    this.#moves.length = 0;
    if (this.#connection.countsAreTriggered) return;
    const now = this.now();
    for (const [queue, counter] of queues) this.#sql.count.run({ queue, ...counter, now });
  }

  #moved(queue: string, from: JobState | undefined, to: JobState, jobs: number): void {
    if (jobs > 0) this.#moves.push({ queue, from, to, jobs });
  }
}

function stateOf(row: Row): JobState {
  return STATES[row["status"] as number] as JobState;
}

function stateOfOnly(rows: readonly Row[]): JobState | undefined {
  return rows[0] === undefined ? undefined : stateOf(rows[0]);
}
