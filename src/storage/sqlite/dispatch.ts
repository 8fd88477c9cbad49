import type { Enqueued } from "../storage.ts";
import type { Conflict } from "./fan-out.ts";
import type { Sign } from "./group-commit.ts";
import type { Outbox } from "./outbox.ts";
import type { DispatchCommand, NewEvent } from "./protocol.ts";
import { CommandStep } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

/** Adds events to their queues, all or none. */
export class DispatchStep extends CommandStep<DispatchCommand> {
  readonly refusedWhen = "short";
  #dispatched: Enqueued[][] = [];
  #conflict: Conflict | undefined;
  #now = 0;

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
    this.#now = transitions.now();
    this.#dispatched = [];
    this.#conflict = transitions.atomically(() => {
      this.#dispatched = transitions.dispatch(this.command.events, this.#now);
    });
  }

  override confirmed(transitions: Transitions): Sign {
    for (const [index, outcomes] of this.#dispatched.entries()) {
      const event = this.command.events[index] as NewEvent;
      const first = outcomes.findIndex(({ inserted }) => inserted);
      if (first < 0) continue;
      const { id } = outcomes[first] as Enqueued;
      return transitions.wasPut(event.queues[first] as string, id, event, this.#now) ? "likely" : false;
    }
    return undefined;
  }

  override succeed(): void {
    const { id } = this.command;
    if (this.#conflict === undefined) this.outbox.answer({ id, dispatched: this.#dispatched });
    else this.outbox.conflict(id, this.#conflict);
  }
}
