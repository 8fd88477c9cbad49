import type { StorageError } from "../../errors.ts";
import { type ClaimContext, ClaimStep, QueueClaims, shareOf, type Waiter } from "./claims.ts";
import type { Connection } from "./connection.ts";
import { isConnectionFailure } from "./driver.ts";
import type { Outbox } from "./outbox.ts";
import type { ClaimCommand } from "./protocol.ts";
import { lockedOut } from "./refusals.ts";
import type { Transitions } from "./transitions.ts";

export interface WaitingClaimsOptions {
  readonly connection: Connection;
  readonly transitions: Transitions;
  readonly outbox: Outbox;
  readonly clock: () => number;
  /** What the claims of one batch need; made anew for each. */
  readonly context: () => ClaimContext;
}

/** The claims that wait for work, of all queues. */
export class WaitingClaims {
  readonly #options: WaitingClaimsOptions;
  readonly #queues = new Map<string, QueueClaims>();

  constructor(options: WaitingClaimsOptions) {
    this.#options = options;
  }

  get any(): boolean {
    for (const { waiters } of this.#queues.values()) if (waiters.length > 0) return true;
    return false;
  }

  add(waiter: Waiter): void {
    const { queue } = waiter.command.origin;
    let claims = this.#queues.get(queue);
    if (claims === undefined) {
      claims = new QueueClaims(queue);
      this.#queues.set(queue, claims);
    }
    claims.waiters.push(waiter);
    claims.check = true;
  }

  withdraw(which: (command: ClaimCommand) => boolean, refused: "aborted" | "closed"): void {
    for (const claims of this.#queues.values()) {
      for (const waiter of claims.waiters.filter(({ command }) => which(command))) {
        claims.remove(waiter);
        this.#options.outbox.answer({ id: waiter.command.id, refused });
      }
    }
  }

  /** Something may have become ready. */
  check(queue: string): void {
    const claims = this.#queues.get(queue);
    if (claims !== undefined) claims.check = true;
  }

  checkAll(): void {
    for (const claims of this.#queues.values()) claims.check = true;
  }

  /**
   * Steps for the queues where there may be work, among them those that the batch mentions anyway. Unless a transaction
   * is needed in any case, they look before they lock.
   */
  steps(mentioned: ReadonlySet<string>, locking: boolean): ClaimStep[] {
    const wall = this.#options.clock();
    const steps: ClaimStep[] = [];
    for (const claims of this.#queues.values()) {
      if (claims.waiters.length === 0) continue;
      if (!(claims.mayFind(wall) || mentioned.has(claims.queue))) continue;
      const context = this.#options.context();
      if (locking || this.#findsWork(claims, wall, context)) steps.push(this.#step(claims, context));
    }
    return steps;
  }

  #findsWork(claims: QueueClaims, wall: number, { mayExpire }: ClaimContext): boolean {
    try {
      return claims.see(this.#options.transitions.look(claims.queue), wall, mayExpire);
    } catch (error) {
      // An index may be missing. The next transaction notices, and makes it anew.
      if (isConnectionFailure(error)) throw error;
      return true;
    }
  }

  #step(claims: QueueClaims, context: ClaimContext): ClaimStep {
    const { commitMs, space } = this.#options.connection;
    return new ClaimStep(claims, context, Math.min(shareOf(claims.waiters.length, commitMs), space.callers));
  }

  /** Tells claims that their time is up: nothing came, or there is work but the lock cannot be had. */
  endWaits(now: number, stalled: boolean): void {
    // Nobody has looked for work, and the client would not hear of it. When it is back there is a look first.
    if (stalled) return;
    const { outbox, connection } = this.#options;
    for (const [queue, claims] of this.#queues) {
      const locked = claims.check;
      for (const { command } of claims.takeEnded(now, locked)) {
        if (locked) outbox.fail(command.id, lockedOut(connection.file));
        else outbox.answer({ id: command.id, claimed: [] });
      }
      if (claims.waiters.length === 0) this.#queues.delete(queue);
    }
  }

  failAll(error: StorageError): void {
    for (const { waiters } of this.#queues.values()) {
      for (const { command } of waiters.splice(0)) this.#options.outbox.fail(command.id, error);
    }
  }

  /** Whether there is work for them now, as far as is known; a client that is stalled gets none. */
  toDo(stalled: boolean): boolean {
    const wall = this.#options.clock();
    return !stalled && this.#waitedFor().some((claims) => claims.mayFind(wall));
  }

  /** For how long there is nothing to do for them, unless somebody commits. */
  waitMs(now: number, stalled: boolean): number {
    if (stalled) return Number.POSITIVE_INFINITY;
    const wall = this.#options.clock();
    let ms = Number.POSITIVE_INFINITY;
    for (const claims of this.#waitedFor()) {
      const workThere = claims.mayFind(wall);
      if (!workThere) ms = Math.min(ms, claims.nextAt - wall);
      for (const { endsAt, lockEndsAt = Number.POSITIVE_INFINITY } of claims.waiters)
        ms = Math.min(ms, (workThere ? lockEndsAt : endsAt) - now);
    }
    return ms;
  }

  #waitedFor(): QueueClaims[] {
    return [...this.#queues.values()].filter(({ waiters }) => waiters.length > 0);
  }
}
