import type { FailedDetails } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { type Command, JSON_REPORT } from "./command.ts";
import { jsonOf } from "./dead-letter.ts";
import { FAILED_FILTER, filterOf } from "./failed-filter.ts";
import { EXIT } from "./failures.ts";
import { print, tell } from "./output.ts";
import type { Place } from "./place.ts";
import { again } from "./queue-access.ts";
import { printTable } from "./table.ts";
import { printable } from "./wording.ts";

const DEFAULT_LIMIT = 100;
const HIGHEST_LIMIT = 10_000;

export function failedList<Letter extends FailedDetails>(place: Place<Letter>): Command {
  const name = `${place.prefix}failed list`;
  const [usual, other] = place.typed;
  return {
    name,
    summary: `List the dead letters of a ${place.kind}, in the order of their ids.`,
    operands: "<location>",
    options: {
      ...place.options,
      limit: { value: "N", help: `How many (default ${DEFAULT_LIMIT}).` },
      after: { value: "ID", help: "Only those with a higher id: the next page." },
      ...FAILED_FILTER,
      json: { help: `${JSON_REPORT.help} Payloads are in it.` },
    },
    examples: [
      `localqueue ${name} ${usual}`,
      `localqueue ${name} ${usual} --reason rejected --category no-such-address`,
      `localqueue ${name} ${other} --limit 1000 --after 5123 --json`,
    ],

    async run(args) {
      args.atMost(1);
      const limit = args.integerFrom("limit", 1, HIGHEST_LIMIT, DEFAULT_LIMIT);
      const afterId = args.integerFrom("after", 0, Number.MAX_SAFE_INTEGER, 0);
      const letters = await place.inspect(args, (holder) => holder.listFailed({ limit, afterId, ...filterOf(args) }));
      if (args.has("json")) print(`[${letters.map((letter) => jsonOf(place, letter)).join(",")}]`);
      else report(place, args, letters);
      if (letters.length === limit) {
        const filter = args.typed("limit", "reason", "category");
        tell(`There may be more: ${again(args, name, ...filter, "--after", `${letters.at(-1)?.id}`)}`);
      }
      return EXIT.done;
    },
  };
}

function report<Letter extends FailedDetails>(
  { title, columns }: Place<Letter>,
  args: Arguments,
  letters: readonly Letter[],
): void {
  if (letters.length === 0) {
    print(`No such dead letters: ${title(args)}`);
    return;
  }
  const rows = letters.map((letter) => {
    const cells = columns.map(([, textOf]) => printable(textOf(letter)));
    return [`${letter.id}`, ...cells, printable(letter.lastError ?? "")];
  });
  printTable(["id", ...columns.map(([head]) => head), "last error"], rows);
}
