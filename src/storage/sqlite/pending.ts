import type { StorageError } from "../../errors.ts";
import { BATCH_BYTES, shareOf } from "./claims.ts";
import type { CommandStep } from "./steps.ts";

/** A command that waits for its transaction, and the client's batch that it came in. */
export interface Pending {
  readonly step: CommandStep;
  readonly batch: { open: number };
}

/** The commands that wait for their transaction, in the order in which they came. */
export class PendingCommands {
  readonly #batchDone: () => void;
  #waiting: Pending[] = [];

  /** `batchDone` is called when nothing of a batch waits any more. */
  constructor(batchDone: () => void) {
    this.#batchDone = batchDone;
  }

  get size(): number {
    return this.#waiting.length;
  }

  addBatch(steps: readonly CommandStep[]): void {
    const batch = { open: steps.length };
    for (const step of steps) this.#waiting.push({ step, batch });
    if (batch.open === 0) this.#batchDone();
  }

  /** Those for one transaction, `callers` at most; a large one goes alone. Each is to be given back, or told `done`. */
  take(commitMs: number, callers: number): Pending[] {
    const most = Math.min(shareOf(this.#waiting.length, commitMs), this.#waiting.length, callers);
    let bytes = 0;
    let count = 0;
    for (; count < most; count++) {
      bytes += (this.#waiting[count] as Pending).step.bytes;
      if (bytes > BATCH_BYTES && count > 0) break;
    }
    return this.#waiting.splice(0, count);
  }

  done({ batch }: Pending): void {
    batch.open--;
    if (batch.open === 0) this.#batchDone();
  }

  giveBack(taken: readonly Pending[]): void {
    this.#waiting.unshift(...taken);
  }

  /** Withdraws a command; returns whether it was still waiting. */
  withdraw(id: number): boolean {
    const index = this.#waiting.findIndex(({ step }) => step.command.id === id);
    if (index < 0) return false;
    const [pending] = this.#waiting.splice(index, 1);
    this.done(pending as Pending);
    return true;
  }

  of(session: number): CommandStep[] {
    return this.#waiting.map(({ step }) => step).filter(({ command }) => command.origin.session === session);
  }

  /** What a closing session still has to do waits for the lock no longer than until `latest`. */
  hurry(session: number, latest: number): void {
    for (const step of this.of(session)) step.lockEndsAt = Math.min(step.lockEndsAt, latest);
  }

  failAll(error: StorageError): void {
    for (const pending of this.#waiting.splice(0)) {
      pending.step.fail(error);
      this.done(pending);
    }
  }
}
