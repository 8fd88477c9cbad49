#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { readArguments } from "./arguments.ts";
import type { Command } from "./command.ts";
import { demo } from "./demo.ts";
import { EXIT, explain, Misuse } from "./failures.ts";
import { helpOf, overview } from "./help.ts";
import { bearClosedPipes, print, tell } from "./output.ts";
import { put } from "./put.ts";
import { stats } from "./stats.ts";
import { nearest } from "./wording.ts";
import { work } from "./work.ts";

/** In the order of the help. */
const COMMANDS: readonly Command[] = [demo, put, work, stats];

bearClosedPipes();
process.exitCode = await dispatch(process.argv.slice(2));

/** Runs what the words ask for; resolves to the exit code. */
async function dispatch(words: readonly string[]): Promise<number> {
  try {
    return await run(words);
  } catch (error) {
    const explanation = explain(error);
    if (explanation === undefined) throw error;
    tell(explanation.text);
    return explanation.exitCode;
  }
}

async function run([name, ...rest]: readonly string[]): Promise<number> {
  switch (name) {
    case undefined:
    case "--help":
    case "-h":
      return show(overview(COMMANDS));
    case "help":
      return show(rest[0] === undefined ? overview(COMMANDS) : helpOf(find(rest[0])));
    case "--version":
      return show(JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")).version);
  }
  const command = find(name);
  const args = readArguments(command, rest);
  return args === "help" ? show(helpOf(command)) : command.run(args);
}

function show(text: string): number {
  print(text);
  return EXIT.done;
}

function find(name: string): Command {
  const command = COMMANDS.find((one) => one.name === name);
  if (command !== undefined) return command;
  if (name.startsWith("-")) {
    throw new Misuse(`Unknown option "${name}". A command comes first: localqueue <command> <location>`);
  }
  const names = COMMANDS.map((one) => one.name);
  const meant = nearest(name, names);
  const hint = meant === undefined ? `The commands are ${names.join(", ")}.` : `Did you mean "${meant}"?`;
  throw new Misuse(`Unknown command "${name}". ${hint}`);
}
