import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { EXIT } from "./failures.ts";
import { paint, print, printJson } from "./output.ts";
import { inspect, queueTitle } from "./queue-access.ts";
import { duration, grouped, labelOf, printable, size } from "./wording.ts";

export const diagnostics: Command = {
  name: "diagnostics",
  summary: "Tell how a queue and its file are, without changing or delaying anything.",
  operands: "<location>",
  options: { queue: QUEUE, json: JSON_REPORT },
  examples: ["localqueue diagnostics ./data", "localqueue diagnostics ./data --queue emails --json"],

  async run(args) {
    args.atMost(1);
    const report = await inspect(args, (queue) => queue.diagnostics());
    if (args.has("json")) {
      printJson(report);
      return EXIT.done;
    }
    const { warnings, ...facts } = report;
    const rows = Object.entries(facts)
      .filter(([name]) => !ABOUT_THIS_COMMAND.test(name))
      .map(([name, value]) => [labelOf(name), textOf(name, value)] as const);
    const width = Math.max(...rows.map(([label]) => label.length));
    print(paint("bold", queueTitle(args)));
    for (const [label, text] of rows) print(`${label.padEnd(width)}  ${text}`);
    for (const warning of warnings) print(`\n${paint("yellow", printable(warning))}`);
    return EXIT.done;
  },
};

/** What is no fact of the file, but of the queue object, the connection and the engine of this very command. */
const ABOUT_THIS_COMMAND =
  /^(schemaVersion|queueName|serializer|lease|max|available|synchronous|durability|busy|group|lock|wakeUps|timer|walHeld|longest)/;

function textOf(name: string, value: unknown): string {
  if (value === null || value === undefined) return "-";
  if (value instanceof Date) return value.toISOString();
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return printable(typeof value === "string" ? value : JSON.stringify(value));
  if (name.endsWith("Ms")) return duration(value);
  return name.endsWith("Bytes") ? size(value) : grouped(value);
}
