import type { FailedDetails } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { type Command, JSON_REPORT } from "./command.ts";
import { jsonOf, previewOf } from "./dead-letter.ts";
import { EXIT, Failure, Misuse } from "./failures.ts";
import { paint, print, printRaw } from "./output.ts";
import type { Holder, Place } from "./place.ts";
import { again } from "./queue-access.ts";
import { grouped, labelOf, moment, printable } from "./wording.ts";

export function failedShow<Letter extends FailedDetails>(place: Place<Letter>): Command {
  const { prefix, kind } = place;
  const name = `${prefix}failed show`;
  const [usual, other] = place.typed;
  const [payload] = place.payload;
  return {
    name,
    summary: `Show a dead letter of a ${kind} with its ${payload}.`,
    operands: "<location> ID",
    options: {
      ...place.options,
      raw: { help: `Write the bytes of the ${payload} to standard output, and nothing else.` },
      json: JSON_REPORT,
    },
    examples: [
      `localqueue ${name} ${usual} 17`,
      `localqueue ${name} ${usual} 17 --raw > ${payload}.json`,
      `localqueue ${name} ${other} 17 --json`,
    ],

    async run(args) {
      args.atMost(2);
      const [id] = args.ids;
      if (id === undefined) throw new Misuse(`The id is missing; ${again(args, `${prefix}failed list`)} shows them.`);
      if (args.has("raw") && args.has("json")) throw new Misuse("Give --raw or --json, not both.");
      const letter = await place.inspect(args, (holder) => find(place, args, holder, id));
      if (args.has("raw")) printRaw(letter.rawPayload);
      else if (args.has("json")) print(jsonOf(place, letter));
      else report(place, args, letter);
      return EXIT.done;
    },
  };
}

async function find<Letter extends FailedDetails>(
  place: Place<Letter>,
  args: Arguments,
  holder: Holder<Letter>,
  id: number,
): Promise<Letter> {
  const [found] = await holder.listFailed({ limit: 1, afterId: id - 1 });
  if (found?.id === id) return found;
  const job = await holder.find?.({ id });
  const is = job === undefined ? `There is no dead letter ${id}` : `Job ${id} is no dead letter but ${job.state},`;
  throw new Failure(`NOT_FOUND: ${is} in ${place.name(args)}.`);
}

function report<Letter extends FailedDetails>(place: Place<Letter>, args: Arguments, letter: Letter): void {
  const { id, attempts, reason, category, lastError, createdAt, updatedAt, rawPayload } = letter;
  const { kind, lines } = previewOf(letter);
  const rows: readonly (readonly [label: string, text: string | undefined])[] = [
    ...Object.entries(place.about(letter)).map(([name, text]) => [labelOf(name), text] as const),
    ["put at", moment(createdAt)],
    ["failed at", moment(updatedAt)],
    ["tries", `${attempts}`],
    ["reason", reason],
    ["category", category],
    ["last error", lastError],
    [place.payload[0], `${kind}, ${grouped(rawPayload.byteLength)} bytes`],
  ];
  const width = Math.max(...rows.map(([label]) => label.length));
  print(paint("bold", `Dead letter ${id}: ${place.title(args)}`));
  for (const [label, text] of rows) if (text !== undefined) print(`${label.padEnd(width)}  ${printable(text)}`);
  print(["", ...lines].join("\n"));
}
