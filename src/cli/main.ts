#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { readArguments } from "./arguments.ts";
import { backup } from "./backup.ts";
import { busStats } from "./bus-stats.ts";
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
import { migrate } from "./migrate.ts";
import { bearClosedPipes, print, tell } from "./output.ts";
import { purge } from "./purge.ts";
import { put } from "./put.ts";
import { IN_QUEUE } from "./queue-place.ts";
import { stats } from "./stats.ts";
import { IN_SUBSCRIPTION } from "./subscription-place.ts";
import { vacuum } from "./vacuum.ts";
import { nearest } from "./wording.ts";
import { work } from "./work.ts";

/** In the order of the help. */
const COMMANDS: readonly Command[] = [
  demo,
  put,
  work,
  stats,
  failedList(IN_QUEUE),
  failedShow(IN_QUEUE),
  failedRetry(IN_QUEUE),
  failedPurge(IN_QUEUE),
  purge(IN_QUEUE),
  vacuum,
  check,
  backup,
  migrate,
  diagnostics,
  busStats,
  failedList(IN_SUBSCRIPTION),
  failedShow(IN_SUBSCRIPTION),
  failedRetry(IN_SUBSCRIPTION),
  failedPurge(IN_SUBSCRIPTION),
  purge(IN_SUBSCRIPTION),
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
      return rest[0] === undefined ? show(overview(COMMANDS)) : run([...rest.slice(0, 3), "--help"]);
    case "--version":
      return show(JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")).version);
  }
  return find(words, 1, COMMANDS);
}

/** Looks among the commands for the one that the first words name, then among those with one word more. */
async function find(words: readonly string[], length: number, commands: readonly Command[]): Promise<number> {
  const name = words.slice(0, length).join(" ");
  const command = commands.find((one) => one.name === name);
  if (command !== undefined) {
    const args = readArguments(command, words.slice(length));
    return args === "help" ? show(helpOf(command)) : command.run(args);
  }
  const group = commands.filter((one) => one.name.startsWith(`${name} `));
  if (group.length === 0) throw unknownCommand(name, length, commands);
  if (["--help", "-h"].includes(words[length] ?? "")) return show(overview(group, name));
  if (words.length === length) throw new Misuse(`Say what to do. ${listed(group)}`);
  return find(words, length + 1, group);
}

function show(text: string): number {
  print(text);
  return EXIT.done;
}

function unknownCommand(name: string, length: number, commands: readonly Command[]): Misuse {
  if (name.startsWith("-")) {
    return new Misuse(`Unknown option "${name}". A command comes first: localqueue <command> <location>`);
  }
  const names = commands.map((one) => one.name.split(" ").slice(0, length).join(" "));
  const meant = nearest(name, names);
  return new Misuse(
    `Unknown command "${name}". ${meant === undefined ? listed(commands) : `Did you mean "${meant}"?`}`,
  );
}

function listed(commands: readonly Command[]): string {
  return `The commands are ${commands.map(({ name }) => name).join(", ")}.`;
}
