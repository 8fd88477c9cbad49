#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { readArguments } from "./arguments.ts";
import { backup } from "./backup.ts";
import { check } from "./check.ts";
import type { Command } from "./command.ts";
import { demo } from "./demo.ts";
import { diagnostics } from "./diagnostics.ts";
import { failedList } from "./failed-list.ts";
import { failedPurge } from "./failed-purge.ts";
import { failedRetry } from "./failed-retry.ts";
import { failedShow } from "./failed-show.ts";
import { EXIT, explain, Misuse } from "./failures.ts";
import { helpOf, overview } from "./help.ts";
import { bearClosedPipes, print, tell } from "./output.ts";
import { purge } from "./purge.ts";
import { put } from "./put.ts";
import { stats } from "./stats.ts";
import { vacuum } from "./vacuum.ts";
import { nearest } from "./wording.ts";
import { work } from "./work.ts";

/** In the order of the help. */
const COMMANDS: readonly Command[] = [
  demo,
  put,
  work,
  stats,
  failedList,
  failedShow,
  failedRetry,
  failedPurge,
  purge,
  vacuum,
  check,
  backup,
  diagnostics,
];

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

async function run(words: readonly string[]): Promise<number> {
  const [name, ...rest] = words;
  switch (name) {
    case undefined:
    case "--help":
    case "-h":
      return show(overview(COMMANDS));
    case "help":
      return rest[0] === undefined ? show(overview(COMMANDS)) : run([...rest.slice(0, 2), "--help"]);
    case "--version":
      return show(JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")).version);
  }
  const group = COMMANDS.filter((one) => one.name.startsWith(`${name} `));
  if (group.length > 0 && ["--help", "-h"].includes(rest[0] ?? "")) return show(overview(group, name));
  const command = group.length > 0 ? find(words.slice(0, 2).join(" "), group) : find(name, COMMANDS);
  const args = readArguments(command, words.slice(command.name.split(" ").length));
  return args === "help" ? show(helpOf(command)) : command.run(args);
}

function show(text: string): number {
  print(text);
  return EXIT.done;
}

function find(name: string, commands: readonly Command[]): Command {
  const command = commands.find((one) => one.name === name);
  if (command !== undefined) return command;
  if (name.startsWith("-")) {
    throw new Misuse(`Unknown option "${name}". A command comes first: localqueue <command> <location>`);
  }
  const names = commands.map((one) => one.name);
  const all = `The commands are ${names.join(", ")}.`;
  if (commands.every((one) => one.name.startsWith(`${name} `))) throw new Misuse(`Say what to do. ${all}`);
  const meant = nearest(name, names);
  throw new Misuse(`Unknown command "${name}". ${meant === undefined ? all : `Did you mean "${meant}"?`}`);
}
