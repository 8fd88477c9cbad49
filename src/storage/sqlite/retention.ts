import type { StorageError } from "../../errors.ts";
import type { LeaseHolder } from "../held-leases.ts";
import type { Retention } from "../storage.ts";
import type { Connection } from "./connection.ts";
import type { Step } from "./group-commit.ts";
import type { Neighbours } from "./neighbours.ts";
import type { Transitions } from "./transitions.ts";
import { type Path, Walk } from "./walk.ts";

const FIRST_PASS_MS = 1000;
/** From the end of a pass to the next one, at least; and at least so many times what the last one took. */
const PASS_INTERVAL_MS = 60_000;
const PASS_INTERVALS = 100;
/** How many times as long as a slice took nothing is done after it: while nobody else works, and while somebody does. */
const REST = { idle: 4, busy: 99 } as const;
const IDLE_MS = 1000;
const LOCKED_MS = 100;
/** How long a slice lets others go first who ask at the same time. */
const COURTESY_MS = 100;
/** What would be old by a clock that was set forward by this much may not be old at all. */
const JUMP_MS = 60_000;
const JUMP_PAUSE_MS = 3_600_000;

export interface RetentionPassesOptions {
  readonly connection: Connection;
  readonly neighbours: Neighbours;
  /** Milliseconds since the epoch. */
  readonly clock: () => number;
  readonly monotonic: () => number;
  readonly consumers: ReadonlyMap<number, LeaseHolder>;
}

/** A pass over the rows of one queue. */
interface Pass {
  readonly queue: string;
  readonly walk: Walk;
  tookMs: number;
}

/**
 * Removes finished jobs that are older than their queue's consumers want to keep them, in passes: each begins at the
 * lowest id and ends at the first row that was created after the cut-off, so it costs what the old rows cost.
 */
export class RetentionPasses {
  readonly #options: RetentionPassesOptions;
  /** When each queue's next pass begins. */
  readonly #passAt = new Map<string, number>();
  #pass: Pass | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #othersAt = Number.NEGATIVE_INFINITY;
  /** By how much the wall clock was ahead of the monotonic one when they were last looked at. */
  #ahead: number | undefined;

  constructor(options: RetentionPassesOptions) {
    this.#options = options;
  }

  get nextAt(): number {
    return this.#dueAt;
  }

  consumerCame(): void {
    const now = this.#options.monotonic();
    this.#ahead ??= this.#options.clock() - now;
    for (const queue of this.#kept().keys()) {
      if (!this.#passAt.has(queue)) this.#passAt.set(queue, now + FIRST_PASS_MS);
    }
    this.#plan();
  }

  nextStep(now: number, others: boolean): Step | undefined {
    if (others) this.#othersAt = now;
    if (now < this.#dueAt + (others ? COURTESY_MS : 0)) return undefined;
    const wall = Math.round(this.#options.clock());
    if (this.#jumped(now, wall)) return undefined;
    this.#pass ??= this.#begin(now, wall);
    const pass = this.#pass;
    if (pass === undefined) return this.#plan();
    return pass.walk.slice(false, (error) => this.#sliced(pass, error));
  }

  locked(now: number): void {
    this.#dueAt = now + LOCKED_MS;
  }

  /** What is to be kept, by queue. Of two consumers that differ, the one that keeps less decides. */
  #kept(): Map<string, Retention> {
    const kept = new Map<string, Retention>();
    for (const { settings } of this.#options.consumers.values()) {
      const { queue, retention } = settings;
      if (retention === undefined) continue;
      const { ackedMs, failedMs } = kept.get(queue) ?? {};
      kept.set(queue, { ackedMs: less(ackedMs, retention.ackedMs), failedMs: less(failedMs, retention.failedMs) });
    }
    return kept;
  }

  #jumped(now: number, wall: number): boolean {
    const ahead = wall - now;
    const jumped = ahead - (this.#ahead ?? ahead) > JUMP_MS;
    this.#ahead = ahead;
    if (!jumped) return false;
    this.#pass = undefined;
    for (const queue of this.#passAt.keys()) this.#passAt.set(queue, now + JUMP_PAUSE_MS);
    this.#plan();
    return true;
  }

  #begin(now: number, wall: number): Pass | undefined {
    const kept = this.#kept();
    for (const [queue, at] of this.#passAt) {
      const retention = kept.get(queue);
      if (retention === undefined) this.#passAt.delete(queue);
      else if (at <= now) return { queue, walk: new Walk(pathsOf(queue, retention, wall)), tookMs: 0 };
    }
    return undefined;
  }

  #sliced(pass: Pass, error: StorageError | undefined): void {
    const { connection, monotonic, neighbours } = this.#options;
    const now = monotonic();
    pass.tookMs += connection.heldMs;
    if (error !== undefined || pass.walk.over) {
      this.#passAt.set(pass.queue, now + Math.max(PASS_INTERVAL_MS, PASS_INTERVALS * pass.tookMs));
      this.#pass = undefined;
    }
    const idle = now - this.#othersAt >= IDLE_MS && !neighbours.active(now);
    this.#plan(now + connection.heldMs * (idle ? REST.idle : REST.busy));
  }

  #plan(restUntil = 0): undefined {
    const next = this.#pass === undefined ? Math.min(...this.#passAt.values()) : 0;
    this.#dueAt = Math.max(next, restUntil);
  }
}

function less(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}

function pathsOf(queue: string, { ackedMs, failedMs }: Retention, now: number): Path[] {
  const path = (ms: number, failed: boolean): Path => {
    const before = now - ms;
    /** Ids and times of creation grow together, unless the clock was wrong once: a row of the future means nothing. */
    const over = (transitions: Transitions, id: number): boolean => {
      const created = transitions.createdAt(id);
      return created >= before && created <= now;
    };
    return {
      ...(failed ? { failedOf: queue } : {}),
      visit: (transitions, at) => ({
        changed: failed ? transitions.purgeFailed(queue, at, { before }) : transitions.purgeAcked(queue, at, before),
        over: over(transitions, at.last),
      }),
    };
  };
  return [
    ...(ackedMs === undefined ? [] : [path(ackedMs, false)]),
    ...(failedMs === undefined ? [] : [path(failedMs, true)]),
  ];
}
