import type { Connection } from "./connection.ts";
import type { Step } from "./group-commit.ts";
import { SLICE } from "./statements.ts";

/** A clock that goes back by less than this is not worth a repair; a repair then leaves nothing in the future. */
const TOLERANCE_MS = 1000;
/** After so long without a look, others may have written what is in the future now, and this engine cannot tell. */
const UNSEEN_MS = 2000;

/**
 * Notices that the wall clock was set back, while we run or since the file was last written. Leases and delays that
 * were written in what is now the future are then shifted so that they keep their remaining length: nothing is stuck
 * for longer than its lease or delay. Works in slices, each in the next batch, and is harmless to repeat.
 */
export class ClockWatch {
  readonly #connection: Connection;
  readonly #clock: () => number;
  /** The latest that was seen on the wall clock, or that somebody has written. */
  #latest = Number.NEGATIVE_INFINITY;
  /** What it showed at the last look, and when that was by the monotonic clock. */
  #seen = Number.NEGATIVE_INFINITY;
  #seenAt = Number.NEGATIVE_INFINITY;
  /** Queues whose delayed jobs are still to be looked at, from a time on. */
  #queues: { readonly queue: string; from: number }[] | undefined;
  busy = false;

  constructor(connection: Connection, clock: () => number) {
    this.#connection = connection;
    this.#clock = clock;
  }

  /** To be called with each batch. */
  nextStep(monotonic: number): Step | undefined {
    const now = this.#clock();
    if (this.#wentBack(now, monotonic)) {
      this.#latest = now;
      this.#queues = undefined;
      this.busy = true;
    }
    this.#seen = now;
    this.#seenAt = monotonic;
    this.#latest = Math.max(this.#latest, now);
    return this.busy ? this.#slice() : undefined;
  }

  #wentBack(now: number, monotonic: number): boolean {
    const passed = monotonic - this.#seenAt;
    if (passed >= UNSEEN_MS) this.#latest = Math.max(this.#latest, this.#latestWritten());
    // The second, because others may have written since, just before the clock was set back.
    return now < this.#latest - TOLERANCE_MS || now - this.#seen < passed - TOLERANCE_MS;
  }

  /** A renewal shows in its row alone. */
  #latestWritten(): number {
    const { clock, latestLeased } = this.#connection.statements;
    return Math.max(Number(clock.get()?.["clock"]), Number(latestLeased.get()?.["latest"]));
  }

  #slice(): Step {
    let after: () => void = () => undefined;
    return {
      fsync: false,
      compound: true,
      execute: () => {
        const now = Math.round(this.#clock());
        this.#latest = Math.max(this.#latest, now);
        after = this.#repair(now);
      },
      succeed: () => after(),
      fail: () => {
        // Begun anew at the next occasion.
        this.busy = false;
        this.#latest = Number.POSITIVE_INFINITY;
      },
    };
  }

  /** Repairs one slice; returns what to do once it is committed. */
  #repair(now: number): () => void {
    const { statements } = this.#connection;
    const leased = statements.aheadLeased.all({ now });
    for (const { id } of leased) statements.pullBackLease.run({ id: id as number, now });
    if (leased.length === SLICE) return () => undefined;
    // Only now: before this transaction somebody may have written into a new queue, at what is now in the future.
    this.#queues ??= statements.queues.all().map((row) => ({ queue: row["queue"] as string, from: 0 }));
    const queues = this.#queues;
    const [current] = queues;
    if (current === undefined) {
      // Not before any time that a slice has written, should the clock be set meanwhile.
      statements.resetClock.run({ now: Math.round(this.#latest) });
      return () => {
        this.busy = false;
      };
    }
    const delayed = statements.aheadDelayed.all({ queue: current.queue, from: current.from, now });
    for (const { id } of delayed) statements.pullBackDelay.run({ id: id as number, now });
    return () => {
      if (delayed.length < SLICE) queues.shift();
      else current.from = delayed.at(-1)?.["due"] as number;
    };
  }
}
