import type { Command } from "./protocol.ts";

/** A batch ends at so many commands or bytes; what is larger travels alone. */
const BATCH_COMMANDS = 1000;
const BATCH_BYTES = 1024 * 1024;

/** Commands on their way to the engine. */
export class OutgoingBatch {
  readonly commands: Command[] = [];
  #bytes = 0;

  /** Whether a command of this size may join: a large one travels alone. */
  takes(bytes: number): boolean {
    if (this.commands.length === 0) return true;
    return this.commands.length < BATCH_COMMANDS && this.#bytes + bytes <= BATCH_BYTES;
  }

  add(command: Command, bytes: number): void {
    this.commands.push(command);
    this.#bytes += bytes;
  }

  withdraw(command: Command): void {
    const index = this.commands.indexOf(command);
    if (index >= 0) this.commands.splice(index, 1);
  }
}
