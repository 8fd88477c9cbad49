import type { FailedMessage } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { jsonOf, previewOf } from "./dead-letter.ts";
import { EXIT, Failure, Misuse } from "./failures.ts";
import { paint, print, printRaw } from "./output.ts";
import { again, inspect, queueName, queueTitle } from "./queue-access.ts";
import { grouped, moment, printable } from "./wording.ts";

export const failedShow: Command = {
  name: "failed show",
  summary: "Show a dead letter with its payload.",
  operands: "<location> ID",
  options: {
    queue: QUEUE,
    raw: { help: "Write the bytes of the payload to standard output, and nothing else." },
    json: JSON_REPORT,
  },
  examples: [
    "localqueue failed show ./data 17",
    "localqueue failed show ./data 17 --raw > payload.json",
    "localqueue failed show ./data 17 --queue emails --json",
  ],

  async run(args) {
    args.atMost(2);
    const [id] = args.ids;
    if (id === undefined) throw new Misuse(`The id is missing; ${again(args, "failed list")} shows them.`);
    if (args.has("raw") && args.has("json")) throw new Misuse("Give --raw or --json, not both.");
    const letter = await inspect(args, async (queue) => {
      const [found] = await queue.listFailed({ limit: 1, afterId: id - 1 });
      if (found?.id === id) return found;
      const job = await queue.find({ id });
      const is = job === undefined ? `There is no job ${id}` : `Job ${id} is no dead letter but ${job.state},`;
      throw new Failure(`NOT_FOUND: ${is} in queue "${printable(queueName(args))}".`);
    });
    if (args.has("raw")) printRaw(letter.rawPayload);
    else if (args.has("json")) print(jsonOf(letter));
    else report(args, letter);
    return EXIT.done;
  },
};

function report(args: Arguments, letter: FailedMessage<Uint8Array>): void {
  const { id, jobId, attempts, reason, category, lastError, createdAt, updatedAt, rawPayload } = letter;
  const { kind, lines } = previewOf(letter);
  const rows: readonly (readonly [label: string, text: string | undefined])[] = [
    ["job id", jobId],
    ["put at", moment(createdAt)],
    ["failed at", moment(updatedAt)],
    ["tries", `${attempts}`],
    ["reason", reason],
    ["category", category],
    ["last error", lastError],
    ["payload", `${kind}, ${grouped(rawPayload.byteLength)} bytes`],
  ];
  print(paint("bold", `Dead letter ${id}: ${queueTitle(args)}`));
  for (const [label, text] of rows) if (text !== undefined) print(`${label.padEnd(10)}  ${printable(text)}`);
  print(["", ...lines].join("\n"));
}
