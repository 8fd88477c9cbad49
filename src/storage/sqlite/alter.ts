import type { Outbox } from "./outbox.ts";
import type { AlterCommand } from "./protocol.ts";
import { CommandStep } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

/** Deletes a job that waits, or replays or deletes a dead letter. */
export class AlterStep extends CommandStep<AlterCommand> {
  readonly #done: () => void;
  #changed = false;
  #refused: "missing" | "full" | undefined;

  /** `done` is told when something was changed. */
  constructor(command: AlterCommand, lockEndsAt: number, outbox: Outbox, done: () => void) {
    super(command, lockEndsAt, outbox, command.verb === "replay");
    this.#done = done;
  }

  override execute(transitions: Transitions): void {
    const { verb, job } = this.command;
    const { queue, maxPending } = this.command.origin;
    this.#changed = false;
    this.#refused = verb === "remove" || transitions.isFailed(queue, job) ? undefined : "missing";
    if (verb === "remove") this.#changed = transitions.remove(queue, job);
    else if (this.#refused === undefined) {
      if (verb === "discard") this.#changed = transitions.discard(queue, job);
      else if (maxPending === undefined || transitions.hasRoom(queue, maxPending, 1))
        this.#changed = transitions.replay(queue, job, transitions.now());
      else this.#refused = "full";
    }
  }

  override succeed(): void {
    const { id } = this.command;
    if (this.#changed) this.#done();
    if (this.#refused === undefined) this.outbox.answer({ id, changed: this.#changed ? 1 : 0 });
    else this.outbox.answer({ id, refused: this.#refused });
  }
}
