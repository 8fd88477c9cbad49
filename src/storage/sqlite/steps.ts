import type { StorageError } from "../../errors.ts";
import type { JobState } from "../../state.ts";
import type { HeldLease } from "../held-leases.ts";
import type { Delivery, Enqueued } from "../storage.ts";
import { type ClaimContext, deliver, type Waiter } from "./claims.ts";
import type { Conflict } from "./fan-out.ts";
import type { Step } from "./group-commit.ts";
import type { Outbox } from "./outbox.ts";
import type { Command, ExtendCommand, NewJob, PutCommand, ReclaimCommand, SettleCommand } from "./protocol.ts";
import type { Transitions } from "./transitions.ts";

/** The commands of callers, and the engine's own work, as steps of a batch. */

/** What the steps of all commands have in common. */
export abstract class CommandStep<C extends Command = Command> implements Step {
  readonly command: C;
  readonly compound: boolean;
  /** When to give up waiting for the lock; but one attempt is made in any case. */
  lockEndsAt: number;
  protected readonly outbox: Outbox;

  constructor(command: C, lockEndsAt: number, outbox: Outbox, compound: boolean) {
    this.command = command;
    this.lockEndsAt = lockEndsAt;
    this.compound = compound;
    this.outbox = outbox;
  }

  get fsync(): boolean {
    return this.command.origin.fsync;
  }

  /** The queues in which there may be more to claim afterwards. */
  get queues(): readonly string[] {
    return [this.command.origin.queue];
  }

  /** What it brings along. */
  get bytes(): number {
    return 0;
  }

  abstract execute(transitions: Transitions): void;
  abstract succeed(): void;

  fail(error: StorageError): void {
    this.outbox.fail(this.command.id, error);
  }
}

export class PutStep extends CommandStep<PutCommand> {
  readonly refusedWhen = "short";
  #enqueued: Enqueued[] = [];

  constructor(command: PutCommand, lockEndsAt: number, outbox: Outbox) {
    super(command, lockEndsAt, outbox, command.entries.length > 1);
  }

  override get bytes(): number {
    return this.command.bytes;
  }

  override execute(transitions: Transitions): void {
    const { origin, entries } = this.command;
    this.#enqueued = transitions.put(origin.queue, entries, transitions.now());
  }

  /** Whether it may be done in one statement with others of its queue, which must not find their jobs there already. */
  get joinable(): boolean {
    return this.command.entries.length === 1 && this.command.entries[0]?.jobId === null;
  }

  /** Performs those of one queue; `Step.execute` for all of them. */
  static executeAll(steps: readonly PutStep[], transitions: Transitions): void {
    const { queue } = (steps[0] as PutStep).command.origin;
    const jobs = steps.map(({ command }) => command.entries[0] as NewJob);
    const enqueued = transitions.put(queue, jobs, transitions.now());
    for (let i = 0; i < steps.length; i++) (steps[i] as PutStep).#enqueued = [enqueued[i] as Enqueued];
  }

  override succeed(): void {
    this.outbox.answer({ id: this.command.id, put: this.#enqueued });
  }
}

export class SettleStep extends CommandStep<SettleCommand> {
  readonly #ended: (receipt: string) => void;
  #state: JobState | undefined;
  #conflict: Conflict | undefined;

  /** `ended` is told that a delivery is over, or was over already. */
  constructor(command: SettleCommand, lockEndsAt: number, outbox: Outbox, ended: (receipt: string) => void) {
    super(command, lockEndsAt, outbox, false);
    this.#ended = ended;
  }

  /** What it emits makes the file grow. */
  get refusedWhen(): "short" | undefined {
    return this.command.emit && "short";
  }

  override get queues(): readonly string[] {
    const { origin, emit } = this.command;
    return emit === undefined ? [origin.queue] : [origin.queue, ...emit.events.flatMap(({ queues }) => queues)];
  }

  override get bytes(): number {
    return this.command.emit?.bytes ?? 0;
  }

  override execute(transitions: Transitions): void {
    const { emit } = this.command;
    const now = transitions.now();
    this.#conflict = undefined;
    if (emit === undefined) this.#settle(transitions, now);
    else {
      this.#conflict = transitions.atomically(() => {
        this.#settle(transitions, now);
        if (this.#state !== undefined) transitions.emit(this.command.lease.id, emit.events, now);
      });
    }
  }

  /** Whether it may be done in one statement with others of its queue. */
  get joinable(): boolean {
    return this.command.move.event === "ack" && this.command.emit === undefined;
  }

  /** Performs those of one queue; `Step.execute` for all of them. Throws if one of the leases is lost. */
  static executeAll(steps: readonly SettleStep[], transitions: Transitions): void {
    const { queue } = (steps[0] as SettleStep).command.origin;
    const leases = steps.map(({ command }) => command.lease);
    transitions.acknowledge(queue, leases, transitions.now());
    for (const step of steps) step.#state = "acked";
  }

  #settle(transitions: Transitions, now: number): void {
    const { origin, lease, move } = this.command;
    this.#state = transitions.settle(origin.queue, lease, move, now);
  }

  override succeed(): void {
    const { id, lease } = this.command;
    if (this.#conflict !== undefined) {
      // The delivery goes on.
      this.outbox.conflict(id, this.#conflict);
      return;
    }
    this.#ended(lease.receipt);
    this.outbox.answer(this.#state === undefined ? { id, refused: "lost" } : { id, settled: this.#state });
  }
}

export class ExtendStep extends CommandStep<ExtendCommand> {
  readonly #extended: (receipt: string, ms: number) => void;
  #until: number | undefined;

  constructor(
    command: ExtendCommand,
    lockEndsAt: number,
    outbox: Outbox,
    extended: (receipt: string, ms: number) => void,
  ) {
    super(command, lockEndsAt, outbox, false);
    this.#extended = extended;
  }

  override execute(transitions: Transitions): void {
    const { origin, lease, ms } = this.command;
    this.#until = transitions.extend(origin.queue, lease, ms);
  }

  override succeed(): void {
    const { id, lease, ms } = this.command;
    if (this.#until === undefined) this.outbox.answer({ id, refused: "lost" });
    else {
      this.#extended(lease.receipt, ms);
      this.outbox.answer({ id, extended: this.#until });
    }
  }
}

export class ReclaimStep extends CommandStep<ReclaimCommand> {
  #reclaimed = 0;

  constructor(command: ReclaimCommand, lockEndsAt: number, outbox: Outbox) {
    super(command, lockEndsAt, outbox, true);
  }

  override execute(transitions: Transitions): void {
    this.#reclaimed = 0;
    for (let slice = transitions.expire(this.command.origin.queue, null); slice > 0; ) {
      this.#reclaimed += slice;
      slice = transitions.expire(this.command.origin.queue, null);
    }
  }

  override succeed(): void {
    this.outbox.answer({ id: this.command.id, reclaimed: this.#reclaimed });
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

  succeed(): void {}
  fail(): void {}
}

/** Renews leases of which COMMIT ate too much, then hands out what is still ours. */
export class LateDeliveryStep implements Step {
  readonly fsync = false;
  readonly compound = false;
  readonly #waiter: Waiter;
  readonly #rows: readonly Delivery[];
  readonly #context: ClaimContext;
  #renewed: Delivery[] = [];

  constructor(waiter: Waiter, rows: readonly Delivery[], context: ClaimContext) {
    this.#waiter = waiter;
    this.#rows = rows;
    this.#context = context;
  }

  execute(transitions: Transitions): void {
    const { origin, leaseMs } = this.#waiter.command;
    this.#renewed = this.#rows.flatMap((row) => {
      const leaseUntil = transitions.renew(origin.queue, row, leaseMs);
      return leaseUntil === undefined ? [] : [{ ...row, leaseUntil }];
    });
  }

  succeed(): void {
    deliver(this.#waiter, this.#renewed, this.#context);
  }

  fail(error: StorageError): void {
    this.#context.outbox.fail(this.#waiter.command.id, error);
  }
}

/** A step of no effect: the transaction around it brings the file's layout up to date. */
export const nothing: Step = {
  fsync: false,
  compound: false,
  execute: () => undefined,
  succeed: () => undefined,
  fail: () => undefined,
};
