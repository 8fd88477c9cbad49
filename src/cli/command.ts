import type { Arguments, CommandOption, Syntax } from "./arguments.ts";

/** All that there is to know about a command: adding one is adding a file, and an entry in `main.ts`. */
export interface Command extends Syntax {
  /** One line, for the list of commands. */
  readonly summary: string;
  /** What else is worth knowing, lines of at most 110 characters. */
  readonly notes?: readonly string[];
  /** Whole command lines. */
  readonly examples: readonly string[];
  /** Resolves to the exit code. */
  run(args: Arguments): Promise<number>;
}

export const QUEUE: CommandOption = { value: "NAME", help: 'The logical queue (default "default").' };
export const JSON_REPORT: CommandOption = { help: "Print the report as one line of JSON." };
export const FSYNC: CommandOption = { help: "Flush to the disk before anything is confirmed." };
