import type { Enqueued } from "../storage.ts";
import type { Conflict } from "./fan-out.ts";
import type { Outbox } from "./outbox.ts";
import type { DispatchCommand } from "./protocol.ts";
import { CommandStep } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

/** Adds events to their queues, all or none. */
export class DispatchStep extends CommandStep<DispatchCommand> {
  readonly refusedWhen = "short";
  #dispatched: Enqueued[][] = [];
  #conflict: Conflict | undefined;

  constructor(command: DispatchCommand, lockEndsAt: number, outbox: Outbox) {
    super(command, lockEndsAt, outbox, false);
  }

  override get queues(): readonly string[] {
    return this.command.events.flatMap(({ queues }) => queues);
  }

  override get bytes(): number {
    return this.command.bytes;
  }

  override execute(transitions: Transitions): void {
    const now = transitions.now();
    this.#dispatched = [];
    this.#conflict = transitions.atomically(() => {
      this.#dispatched = transitions.dispatch(this.command.events, now);
    });
  }

  override succeed(): void {
    const { id } = this.command;
    if (this.#conflict === undefined) this.outbox.answer({ id, dispatched: this.#dispatched });
    else this.outbox.conflict(id, this.#conflict);
  }
}
