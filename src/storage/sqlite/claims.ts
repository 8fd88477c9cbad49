import type { StorageError } from "../../errors.ts";
import type { LeaseHolder } from "../held-leases.ts";
import type { Delivery, Lease } from "../storage.ts";
import { areSame, type Terms } from "./dequeue.ts";
import type { Step } from "./group-commit.ts";
import type { Outbox } from "./outbox.ts";
import type { ClaimCommand } from "./protocol.ts";
import { SLICE } from "./statements.ts";
import { Supply } from "./supply.ts";
import type { Outlook, Transitions } from "./transitions.ts";

/** A batch takes no further callers beyond this; what remains is served by the next one. */
export const BATCH_BYTES: number = 1024 * 1024;
const BATCH_COMMANDS = 1000;
const BATCH_MS = 5;
const SHARE = 64;
/** About what the client's thread needs for a share. */
const CHEAP_COMMIT_MS = 0.5;

/**
 * How many of the callers who wait go into one transaction: not all, so that the client's thread can take up the
 * answers of the first while the others are served. It is not worth it where a COMMIT takes longer than that saves.
 */
export function shareOf(waiting: number, commitMs: number): number {
  const share = commitMs > CHEAP_COMMIT_MS ? waiting : Math.max(SHARE, Math.ceil(waiting / 2));
  return Math.min(share, BATCH_COMMANDS);
}

/** A claim that has not been answered yet. Times are by `monotonicMs`. */
export interface Waiter {
  readonly command: ClaimCommand;
  readonly consumer: LeaseHolder | undefined;
  /** When to stop waiting for work. */
  readonly endsAt: number;
  /** Set when work was there but the lock was not: when to give up. */
  lockEndsAt: number | undefined;
}

/** One logical queue's waiting claims, first come, first served. */
export class QueueClaims {
  readonly queue: string;
  readonly waiters: Waiter[] = [];
  /** Something may have become ready. */
  check = true;
  /** When the next delayed job is due or the next lease ends, in milliseconds since the epoch. */
  nextAt: number = Number.POSITIVE_INFINITY;

  constructor(queue: string) {
    this.queue = queue;
  }

  /** Whether a claim may find something, as far as is known. */
  mayFind(now: number): boolean {
    return this.check || this.nextAt <= now;
  }

  remove(waiter: Waiter): void {
    const index = this.waiters.indexOf(waiter);
    if (index >= 0) this.waiters.splice(index, 1);
  }

  /** Takes over what a look at the queue showed; returns whether a claim would find something. */
  see({ ready, due, expiry }: Outlook, now: number, mayExpire: boolean): boolean {
    this.nextAt = mayExpire ? Math.min(due, expiry) : due;
    this.check = ready || this.nextAt <= now;
    if (!this.check) this.noLongerLocked();
    return this.check;
  }

  /** There is work, but the lock is somebody else's: from `now` on the waiters' patience runs. */
  markLocked(now: number): void {
    this.check = true;
    for (const waiter of this.waiters) {
      const { waitMs, lockMs } = waiter.command;
      waiter.lockEndsAt ??= waitMs === 0 ? now + lockMs : Math.min(now + lockMs, waiter.endsAt);
    }
  }

  /** Takes out the waiters whose time is up. While there is work, it is their patience with the lock that counts. */
  takeEnded(now: number, locked: boolean): Waiter[] {
    const ended = this.waiters.filter(({ endsAt, lockEndsAt }) =>
      locked ? (lockEndsAt ?? Number.POSITIVE_INFINITY) <= now : endsAt <= now,
    );
    for (const waiter of ended) this.remove(waiter);
    return ended;
  }

  /** Somebody had the lock: what the waiters waited for it is forgotten. */
  noLongerLocked(): void {
    for (const waiter of this.waiters) waiter.lockEndsAt = undefined;
  }
}

export interface ClaimContext {
  readonly outbox: Outbox;
  readonly now: () => number;
  /** `false`: no lease is ended now, since its holder may just have woken up with the machine. */
  readonly mayExpire: boolean;
  /** Takes over the lease of a consumer's delivery before it is answered. */
  readonly hold: (lease: Lease, waiter: Waiter) => void;
  /** COMMIT ate much of the new leases: they are to be renewed before anybody sees them. */
  readonly deliverLate: (waiter: Waiter, rows: readonly Delivery[]) => void;
}

/** Serves one queue's waiters as the last step of a batch, with as few statements as possible. */
export class ClaimStep implements Step {
  readonly fsync: boolean;
  readonly compound = true;
  readonly refusedWhen = "spent";
  readonly #claims: QueueClaims;
  readonly #context: ClaimContext;
  readonly #most: number;
  #served: { waiter: Waiter; rows: Delivery[] }[] = [];
  /** Whether there may be more for the next batch to claim. */
  #more = false;
  #startedAt = 0;

  /** Serves at most so many waiters. */
  constructor(claims: QueueClaims, context: ClaimContext, most: number) {
    this.#most = most;
    this.fsync = claims.waiters.some(({ command }) => command.origin.fsync);
    this.#claims = claims;
    this.#context = context;
  }

  execute(transitions: Transitions): void {
    const { queue, waiters } = this.#claims;
    this.#served = [];
    this.#startedAt = transitions.now();
    const { mayExpire } = this.#context;
    let expired = 0;
    let promoted = 0;
    this.#more = true;
    // A look takes a third of a claim's time.
    if (!transitions.isQuiet(queue, this.#startedAt)) {
      const outlook = transitions.look(queue);
      this.#more = this.#claims.see(outlook, this.#startedAt, mayExpire);
      if (!this.#more) return;
      if (mayExpire && outlook.expiry <= this.#startedAt) expired = transitions.expire(queue, budgetOf(waiters[0]));
      if (outlook.due <= this.#startedAt) promoted = transitions.promote(queue);
    }
    const supply = new Supply(transitions, queue);
    let bytes = 0;
    let wanted = 0;
    for (const [i, waiter] of waiters.entries()) {
      // What is claimed is taken.
      if (supply.isEmpty && (bytes >= BATCH_BYTES || transitions.now() - this.#startedAt >= BATCH_MS)) return;
      if (this.#served.length === this.#most) return;
      if (wanted === 0) wanted = this.#wantedFrom(i);
      const rows = supply.take(termsOf(waiter), waiter.command.limit, wanted);
      wanted -= waiter.command.limit;
      for (const { payload } of rows) bytes += payload.length;
      if (rows.length > 0) this.#served.push({ waiter, rows });
      if (rows.length < waiter.command.limit) {
        this.#claims.see(transitions.look(queue), this.#startedAt, mayExpire);
        this.#more = expired === SLICE || promoted === SLICE || supply.isExhausted;
        return;
      }
    }
  }

  /** How many jobs it takes to serve that waiter and those after it that want them on the same terms. */
  #wantedFrom(index: number): number {
    const { waiters } = this.#claims;
    const end = index + this.#most - this.#served.length;
    const terms = termsOf(waiters[index] as Waiter);
    let wanted = 0;
    for (const waiter of waiters.slice(index, end)) {
      if (!areSame(termsOf(waiter), terms)) break;
      wanted += waiter.command.limit;
    }
    return wanted;
  }

  succeed(): void {
    const now = this.#context.now();
    for (const { waiter, rows } of this.#served) {
      this.#claims.remove(waiter);
      if (now - this.#startedAt > waiter.command.leaseMs / 2) this.#context.deliverLate(waiter, rows);
      else deliver(waiter, rows, this.#context);
    }
    this.#claims.noLongerLocked();
    if (this.#more) this.#claims.check = true;
  }

  fail(error: StorageError): void {
    for (const { command } of this.#claims.waiters.splice(0)) this.#context.outbox.fail(command.id, error);
  }

  markLocked(now: number): void {
    this.#claims.markLocked(now);
  }
}

export function deliver(waiter: Waiter, rows: Delivery[], { hold, outbox }: ClaimContext): void {
  for (const row of rows) hold(row, waiter);
  outbox.deliver(waiter.command.id, rows);
}

function budgetOf(waiter: Waiter | undefined): number | null {
  return waiter?.consumer?.settings.maxAttempts ?? null;
}

function termsOf(waiter: Waiter): Terms {
  const { leaseMs, origin } = waiter.command;
  return { leaseMs, budget: budgetOf(waiter), text: origin.text };
}
