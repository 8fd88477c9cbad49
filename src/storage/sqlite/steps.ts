import type { StorageError } from "../../errors.ts";
import type { JobState } from "../../state.ts";
import type { Enqueued } from "../storage.ts";
import { type ClaimContext, deliver, type Waiter } from "./claims.ts";
import type { Step } from "./group-commit.ts";
import type { HeldLease } from "./leases.ts";
import type { Outbox } from "./outbox.ts";
import type { ExtendCommand, PutCommand, ReclaimCommand, SettleCommand } from "./protocol.ts";
import type { ClaimedRow, NewJob, Transitions } from "./transitions.ts";

/** The commands of callers, and the engine's own work, as steps of a batch. */

export class PutStep implements Step {
  readonly fsync: boolean;
  readonly compound: boolean;
  readonly #command: PutCommand;
  readonly #jobs: readonly NewJob[];
  readonly #outbox: Outbox;
  #enqueued: Enqueued[] = [];
  #now = 0;

  constructor(command: PutCommand, jobs: readonly NewJob[], outbox: Outbox) {
    this.fsync = command.fsync;
    this.compound = jobs.length > 1;
    this.#command = command;
    this.#jobs = jobs;
    this.#outbox = outbox;
  }

  execute(transitions: Transitions): void {
    this.#now = transitions.now();
    this.#enqueued = this.#jobs.map((job) => transitions.put(this.#command.queue, job, this.#now));
  }

  confirmed(transitions: Transitions): boolean | undefined {
    const index = this.#enqueued.findIndex(({ inserted }) => inserted);
    if (index < 0) return undefined;
    const { id } = this.#enqueued[index] as Enqueued;
    return transitions.wasPut(this.#command.queue, id, this.#jobs[index] as NewJob, this.#now);
  }

  succeed(): void {
    this.#outbox.answer({ id: this.#command.id, put: this.#enqueued });
  }

  fail(error: StorageError): void {
    this.#outbox.fail(this.#command.id, error);
  }
}

export class SettleStep implements Step {
  readonly fsync: boolean;
  readonly compound = false;
  readonly #command: SettleCommand;
  readonly #outbox: Outbox;
  readonly #ended: (receipt: string) => void;
  #state: JobState | undefined;
  #now = 0;

  /** `ended` is told that a delivery is over, or was over already. */
  constructor(command: SettleCommand, outbox: Outbox, ended: (receipt: string) => void) {
    this.fsync = command.fsync;
    this.#command = command;
    this.#outbox = outbox;
    this.#ended = ended;
  }

  execute(transitions: Transitions): void {
    this.#now = transitions.now();
    this.#state = transitions.settle(this.#command.queue, this.#command.lease, this.#command.move, this.#now);
  }

  confirmed(transitions: Transitions): boolean | undefined {
    if (this.#state === undefined) return undefined;
    if (transitions.isHeld(this.#command.lease)) return false;
    return transitions.wasSettled(this.#command.lease, this.#now) ? true : undefined;
  }

  succeed(): void {
    const { id, lease } = this.#command;
    this.#ended(lease.receipt);
    this.#outbox.answer(this.#state === undefined ? { id, refused: "lost" } : { id, settled: this.#state });
  }

  fail(error: StorageError): void {
    this.#outbox.fail(this.#command.id, error);
  }
}

export class ExtendStep implements Step {
  readonly fsync: boolean;
  readonly compound = false;
  readonly #command: ExtendCommand;
  readonly #outbox: Outbox;
  readonly #extended: (receipt: string, ms: number) => void;
  #until: number | undefined;

  constructor(command: ExtendCommand, outbox: Outbox, extended: (receipt: string, ms: number) => void) {
    this.fsync = command.fsync;
    this.#command = command;
    this.#outbox = outbox;
    this.#extended = extended;
  }

  execute(transitions: Transitions): void {
    this.#until = transitions.extend(this.#command.queue, this.#command.lease, this.#command.ms);
  }

  confirmed(transitions: Transitions): boolean | undefined {
    return this.#until !== undefined && transitions.isHeld(this.#command.lease, this.#until) ? true : undefined;
  }

  succeed(): void {
    const { id, lease, ms } = this.#command;
    if (this.#until === undefined) this.#outbox.answer({ id, refused: "lost" });
    else {
      this.#extended(lease.receipt, ms);
      this.#outbox.answer({ id, extended: this.#until });
    }
  }

  fail(error: StorageError): void {
    this.#outbox.fail(this.#command.id, error);
  }
}

export class ReclaimStep implements Step {
  readonly fsync: boolean;
  readonly compound = true;
  readonly #command: ReclaimCommand;
  readonly #outbox: Outbox;
  #reclaimed = 0;

  constructor(command: ReclaimCommand, outbox: Outbox) {
    this.fsync = command.fsync;
    this.#command = command;
    this.#outbox = outbox;
  }

  execute(transitions: Transitions): void {
    this.#reclaimed = 0;
    for (let slice = transitions.expire(this.#command.queue, null); slice > 0; ) {
      this.#reclaimed += slice;
      slice = transitions.expire(this.#command.queue, null);
    }
  }

  /** Harmless to repeat. */
  confirmed(): undefined {}

  succeed(): void {
    this.#outbox.answer({ id: this.#command.id, reclaimed: this.#reclaimed });
  }

  fail(error: StorageError): void {
    this.#outbox.fail(this.#command.id, error);
  }
}

/** Gives back a delivery that a stalled client never started. */
export class TakeBackStep implements Step {
  readonly fsync = false;
  readonly compound = false;
  readonly #lease: HeldLease;

  constructor(lease: HeldLease) {
    this.#lease = lease;
  }

  execute(transitions: Transitions): void {
    transitions.settle(this.#lease.consumer.settings.queue, this.#lease, { event: "release" });
  }

  confirmed(): undefined {}
  succeed(): void {}
  fail(): void {}
}

/** Renews leases of which COMMIT ate too much, then hands out what is still ours. */
export class LateDeliveryStep implements Step {
  readonly fsync = false;
  readonly compound = false;
  readonly #waiter: Waiter;
  readonly #rows: readonly ClaimedRow[];
  readonly #context: ClaimContext;
  #renewed: ClaimedRow[] = [];

  constructor(waiter: Waiter, rows: readonly ClaimedRow[], context: ClaimContext) {
    this.#waiter = waiter;
    this.#rows = rows;
    this.#context = context;
  }

  execute(transitions: Transitions): void {
    const { queue, leaseMs } = this.#waiter.command;
    this.#renewed = this.#rows.flatMap((row) => {
      const leaseUntil = transitions.renew(queue, row, leaseMs);
      return leaseUntil === undefined ? [] : [{ ...row, leaseUntil }];
    });
  }

  confirmed(): undefined {}

  succeed(): void {
    deliver(this.#waiter, this.#renewed, this.#context);
  }

  fail(error: StorageError): void {
    this.#context.outbox.fail(this.#waiter.command.id, error);
  }
}
