import { parseArgs } from "node:util";
import { Misuse } from "./failures.ts";
import { nearest, shellLine, withoutPassword } from "./wording.ts";

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

const UNITS: { readonly [unit: string]: number } = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/** How a command is called, in one line. */
export function usage({ name, operands, runsProgram = false }: Syntax): string {
  return `localqueue ${name} ${operands} [options]${runsProgram ? " -- COMMAND [ARG…]" : ""}`;
}

/** What was typed after the name of a command, checked against what the command knows. */
export class Arguments {
  /** What is no option, before `--`. */
  readonly operands: readonly string[];
  /** What comes after `--`; `undefined` = there was none. */
  readonly rest: readonly string[] | undefined;
  readonly #syntax: Syntax;
  readonly #values: ReadonlyMap<string, string | undefined>;

  constructor(
    syntax: Syntax,
    operands: readonly string[],
    rest: readonly string[] | undefined,
    values: ReadonlyMap<string, string | undefined>,
  ) {
    this.#syntax = syntax;
    this.operands = operands;
    this.rest = rest;
    this.#values = values;
  }

  /** The first operand. */
  get location(): string {
    const [location] = this.operands;
    if (!location) throw new Misuse(`The location is missing. Usage: ${usage(this.#syntax)}`);
    return location;
  }

  /** The same to be shown. */
  get shownLocation(): string {
    return withoutPassword(this.location);
  }

  /** The value of an option as it was typed. */
  text(option: string): string | undefined {
    return this.#values.get(option);
  }

  /** Those of the options that were typed, with their values, to be typed again. */
  typed(...options: readonly string[]): string[] {
    return options.flatMap((option) => {
      const value = this.text(option);
      return value === undefined ? [] : [`--${option}`, value];
    });
  }

  /** Whether a switch is on. */
  has(option: string): boolean {
    return this.#values.has(option);
  }

  /** The value of an option that takes an integer; its range is for others to check. */
  integer(option: string): number | undefined {
    const text = this.text(option);
    if (text === undefined) return undefined;
    if (!/^-?\d{1,17}$/.test(text)) throw new Misuse(`Expected --${option} to be an integer, got "${text}".`);
    return Number(text);
  }

  /** The same from `least` to `most`, or `standard` when it was not typed. */
  integerFrom(option: string, least: number, most: number, standard: number): number {
    const value = this.integer(option) ?? standard;
    if (value >= least && value <= most) return value;
    throw new Misuse(`Expected --${option} to be an integer from ${least} to ${most}, got ${value}.`);
  }

  /** The value of an option that takes a duration, in milliseconds. */
  duration(option: string): number | undefined {
    const text = this.text(option);
    if (text === undefined) return undefined;
    const [, number, unit = "ms"] = /^(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d|w)?$/.exec(text) ?? [];
    if (number !== undefined) return Math.round(Number(number) * (UNITS[unit] as number));
    throw new Misuse(`Expected --${option} to be a duration like 90s, 15m, 12h, 30d or 2w, got "${text}".`);
  }

  /** The operands after the first, which are ids of dead letters. */
  get ids(): number[] {
    return this.operands.slice(1).map((text) => {
      const id = /^\d{1,16}$/.test(text) ? Number(text) : 0;
      if (id > 0 && Number.isSafeInteger(id)) return id;
      throw new Misuse(
        `"${text}" is no id of a dead letter, which is an integer from 1. Usage: ${usage(this.#syntax)}`,
      );
    });
  }

  /** Refuses operands that the command does not know. */
  atMost(count: number): void {
    const surplus = this.operands[count] ?? (this.#syntax.runsProgram ? undefined : this.rest?.[0]);
    if (surplus === undefined) return;
    throw new Misuse(`"${surplus}" is one argument too many. Usage: ${usage(this.#syntax)}`);
  }
}

/** Our own checks, on the tokens, say more than those of `parseArgs`. */
export function readArguments(syntax: Syntax, words: readonly string[]): Arguments | "help" {
  const types = Object.entries(syntax.options).map(
    ([name, { value }]) => [name, { type: value === undefined ? "boolean" : "string" }] as const,
  );
  const { tokens } = parseArgs({
    args: [...words],
    options: { ...Object.fromEntries(types), help: { type: "boolean", short: "h" } },
    strict: false,
    tokens: true,
  });
  if (tokens.some((token) => token.kind === "option" && token.name === "help")) return "help";
  const end = tokens.find(({ kind }) => kind === "option-terminator")?.index;
  const operands = tokens.filter((token) => token.kind === "positional" && token.index < (end ?? words.length));
  if (syntax.runsProgram && end === undefined) throw missingSeparator(syntax, words, operands[1]?.index);
  const values = new Map<string, string | undefined>();
  for (const token of tokens) {
    if (token.kind !== "option") continue;
    checkOption(syntax, token);
    values.set(token.name, token.value);
  }
  return new Arguments(
    syntax,
    operands.map(({ index }) => words[index] as string),
    end === undefined ? undefined : words.slice(end + 1),
    values,
  );
}

function checkOption(
  { name: command, options }: Syntax,
  { name, rawName, value }: { readonly name: string; readonly rawName: string; readonly value: string | undefined },
): void {
  const option = Object.hasOwn(options, name) ? options[name] : undefined;
  if (option === undefined) {
    const meant = nearest(name, Object.keys(options));
    const hint = meant === undefined ? `localqueue ${command} --help lists the options.` : `Did you mean "--${meant}"?`;
    const dash = command === "put" ? " A payload that begins with a dash comes after --." : "";
    throw new Misuse(`Unknown option "${rawName}". ${hint}${dash}`);
  }
  if (option.value !== undefined && value === undefined) {
    throw new Misuse(`The value of ${rawName} is missing: ${rawName} ${option.value}`);
  }
  if (option.value === undefined && value !== undefined) {
    throw new Misuse(`${rawName} takes no value: ${rawName}`);
  }
}

/** Shows the line with `--` where it belongs: before the second operand, if there is one. */
function missingSeparator(syntax: Syntax, words: readonly string[], programAt: number | undefined): Misuse {
  const split = programAt ?? words.length;
  const program = programAt === undefined ? "COMMAND [ARG…]" : shellLine(words.slice(split));
  const before = words.length === 0 ? "<location>" : shellLine(words.slice(0, split));
  return new Misuse(`Put -- before the command to run: localqueue ${syntax.name} ${before} -- ${program}`);
}
