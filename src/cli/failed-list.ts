import type { FailedMessage } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { jsonOf } from "./dead-letter.ts";
import { FAILED_FILTER, filterOf } from "./failed-filter.ts";
import { EXIT } from "./failures.ts";
import { paint, print, tell } from "./output.ts";
import { again, inspect, queueTitle } from "./queue-access.ts";
import { moment, printable, shortened } from "./wording.ts";

const DEFAULT_LIMIT = 100;
const HIGHEST_LIMIT = 10_000;
const COLUMNS = 80;
/** Columns of numbers. */
const RIGHT: readonly number[] = [0, 2];
/** With the category: something must be left for the error. */
const LONGEST_REASON = 30;

export const failedList: Command = {
  name: "failed list",
  summary: "List the dead letters, in the order of their ids.",
  operands: "<location>",
  options: {
    queue: QUEUE,
    limit: { value: "N", help: `How many (default ${DEFAULT_LIMIT}).` },
    after: { value: "ID", help: "Only those with a higher id: the next page." },
    ...FAILED_FILTER,
    json: { help: `${JSON_REPORT.help} Payloads are in it.` },
  },
  examples: [
    "localqueue failed list ./data",
    "localqueue failed list ./data --reason rejected --category exit-65",
    "localqueue failed list ./data --queue emails --limit 1000 --after 5123 --json",
  ],

  async run(args) {
    args.atMost(1);
    const limit = args.integerFrom("limit", 1, HIGHEST_LIMIT, DEFAULT_LIMIT);
    const afterId = args.integerFrom("after", 0, Number.MAX_SAFE_INTEGER, 0);
    const letters = await inspect(args, (queue) => queue.listFailed({ limit, afterId, ...filterOf(args) }));
    if (args.has("json")) print(`[${letters.map(jsonOf).join(",")}]`);
    else report(args, letters);
    if (letters.length === limit) tell(`There may be more: ${nextPage(args, letters)}`);
    return EXIT.done;
  },
};

function report(args: Arguments, letters: readonly FailedMessage<Uint8Array>[]): void {
  if (letters.length === 0) {
    print(`No such dead letters: ${queueTitle(args)}`);
    return;
  }
  const rows = letters.map(({ id, updatedAt, attempts, reason, category, lastError = "" }) => [
    `${id}`,
    moment(updatedAt),
    `${attempts}`,
    shortened(category === undefined ? reason : `${reason}/${printable(category)}`, LONGEST_REASON),
    printable(lastError),
  ]);
  const table = [["id", "failed at", "tries", "reason", "last error"], ...rows];
  const widths = table
    .map((row) => row.map((cell) => cell.length))
    .reduce((a, b) => a.map((n, i) => Math.max(n, b[i] ?? 0)));
  const lines = table.map((row) => {
    const cells = row.map((cell, i) =>
      RIGHT.includes(i) ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0),
    );
    return shortened(cells.join("  ").trimEnd(), process.stdout.columns || COLUMNS);
  });
  const [head = "", ...body] = lines;
  print([paint("bold", head), ...body].join("\n"));
}

function nextPage(args: Arguments, letters: readonly FailedMessage<Uint8Array>[]): string {
  const typed = ["limit", "reason", "category"].flatMap((option) => {
    const value = args.text(option);
    return value === undefined ? [] : [`--${option}`, value];
  });
  return again(args, "failed list", ...typed, "--after", `${letters.at(-1)?.id}`);
}
