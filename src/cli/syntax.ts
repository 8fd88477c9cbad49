/** An option of a command; without `value` it is a switch. */
export interface CommandOption {
  /** What its value is called in the help. */
  readonly value?: string;
  readonly help: string;
}

/** How a command is called. */
export interface Syntax {
  readonly name: string;
  /** The arguments that are no options: "<location> [JSON…]". */
  readonly operands: string;
  /** Whether a program to be run, with its arguments, comes after `--`. */
  readonly runsProgram?: boolean;
  readonly options: { readonly [name: string]: CommandOption };
}

/** How a command is called, in one line. */
export function usage({ name, operands, runsProgram = false }: Syntax): string {
  return `localqueue ${name} ${operands} [options]${runsProgram ? " -- COMMAND [ARG…]" : ""}`;
}
