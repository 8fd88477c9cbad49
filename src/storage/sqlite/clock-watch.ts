import { ClockRule } from "../clock-rule.ts";
import type { Connection } from "./connection.ts";
import type { Step } from "./group-commit.ts";
import { SLICE } from "./statements.ts";

/**
 * Notices that the wall clock was set back, while we run or since the file was last written. Leases and delays that
 * were written in what is now the future are then shifted so that they keep their remaining length: nothing is stuck
 * for longer than its lease or delay. Works in slices, each in the next batch, and is harmless to repeat.
 */
export class ClockWatch {
  readonly #connection: Connection;
  readonly #clock: () => number;
  readonly #rule = new ClockRule();
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
    if (this.#rule.isUnseen(monotonic)) this.#rule.written(this.#latestWritten());
    if (this.#rule.look(now, monotonic)) {
      this.#queues = undefined;
      this.busy = true;
    }
    return this.busy ? this.#slice() : undefined;
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
        this.#rule.written(now);
        after = this.#repair(now);
      },
      succeed: () => after(),
      fail: () => {
        // Begun anew at the next occasion.
        this.busy = false;
        this.#rule.distrust();
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
      statements.resetClock.run({ now: Math.round(this.#rule.latest) });
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
