import { type CommandOption, usage } from "./arguments.ts";
import type { Command } from "./command.ts";

const HELP: CommandOption = { help: "Print this text." };

/** The help of one command. */
export function helpOf(command: Command): string {
  const { summary, options, notes = [], examples } = command;
  const rows = Object.entries({ ...options, help: HELP }).map(
    ([name, { value, help }]) => [`--${name}${value === undefined ? "" : ` ${value}`}`, help] as const,
  );
  return paragraphs([
    [`Usage: ${usage(command)}`],
    [summary],
    ["Options:", ...table(rows)],
    notes,
    ["Examples:", ...indented(examples)],
  ]);
}

/** The help of the program, or of a group of its commands. */
export function overview(commands: readonly Command[], group?: string): string {
  const command = group === undefined ? "<command>" : `${group} <command>`;
  return paragraphs([
    [`Usage: localqueue ${command} <location> [options]`],
    group === undefined
      ? ["A durable job queue in one SQLite file. <location> is the directory of that file, or a postgres: URL."]
      : [],
    ["Commands:", ...table(commands.map(({ name, summary }) => [name, summary] as const))],
    [`localqueue ${command} --help tells more about a command, localqueue --version the version.`],
    ["Exit codes: 0 done, 1 failed, 2 the command line cannot be understood."],
    ["Examples:", ...indented(commands.flatMap(({ examples }) => examples.slice(0, 1)))],
  ]);
}

function paragraphs(texts: readonly (readonly string[])[]): string {
  const full = texts.filter((lines) => lines.length > 0);
  return full.map((lines) => lines.join("\n")).join("\n\n");
}

function indented(lines: readonly string[]): string[] {
  return lines.map((line) => `  ${line}`);
}

function table(rows: readonly (readonly [left: string, right: string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
