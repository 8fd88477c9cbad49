import type { Outbox } from "./outbox.ts";
import type { AlterCommand } from "./protocol.ts";
import { CommandStep } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

/** Deletes a job that waits, or replays or deletes a dead letter. */
export class AlterStep extends CommandStep<AlterCommand> {
  #changed = false;
  #missing = false;
  #now = 0;

  constructor(command: AlterCommand, lockEndsAt: number, outbox: Outbox) {
    super(command, lockEndsAt, outbox, command.verb === "replay");
  }

  override execute(transitions: Transitions): void {
    const { queue, verb, job } = this.command;
    const before = this.#changed;
    this.#now = transitions.now();
    this.#changed = verb === "replay" ? transitions.replay(queue, job, this.#now) : transitions[verb](queue, job);
    // After a COMMIT that failed and happened all the same: it was us.
    if (before && verb !== "replay" && !transitions.exists(job)) this.#changed = true;
    this.#missing = !this.#changed && verb !== "remove" && !transitions.isFailed(queue, job);
  }

  override confirmed(transitions: Transitions): boolean | undefined {
    if (!this.#changed) return undefined;
    const { verb, job } = this.command;
    if (verb === "replay") return transitions.wasSettled({ id: job, receipt: "" }, this.#now) ? true : undefined;
    // Somebody else may have deleted it since.
    return transitions.exists(job) ? false : undefined;
  }

  override succeed(): void {
    const { id } = this.command;
    this.outbox.answer(this.#missing ? { id, refused: "missing" } : { id, changed: this.#changed ? 1 : 0 });
  }
}
