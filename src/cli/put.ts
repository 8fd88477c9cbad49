import { fstatSync } from "node:fs";
import { EnqueueItem, type SimpleQueue } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { type Command, FSYNC, JSON_REPORT, QUEUE } from "./command.ts";
import { checked, EXIT, Failure, Misuse } from "./failures.ts";
import { parseJson, trim } from "./json-lines.ts";
import { print, printJson } from "./output.ts";
import { type ItemMaker, PutBatches, type PutReport } from "./put-batches.ts";
import { putLines } from "./put-lines.ts";
import { openQueue, queueName, TEXT } from "./queue-access.ts";
import { grouped, jobs, shellLine } from "./wording.ts";

export const put: Command = {
  name: "put",
  summary: "Put jobs: JSON payloads from the command line, or JSON lines from standard input.",
  operands: "<location> [JSON…]",
  options: {
    queue: QUEUE,
    "delay-ms": { value: "MS", help: "How long the jobs wait before they are delivered (default 0)." },
    "max-retries": { value: "N", help: "Deliveries after the first (default 3)." },
    "job-id": { value: "ID", help: "Put the one job only if the queue has none with this id." },
    "job-id-field": { value: "NAME", help: "The same for each job; its id is this field of its payload, a text." },
    fsync: FSYNC,
    json: JSON_REPORT,
  },
  notes: [
    "Payloads are stored byte for byte. White space around them and blank lines are skipped.",
    "A line that is not JSON ends the command; the jobs before it have been put. With --job-id-field",
    "an import can simply be repeated.",
  ],
  examples: [
    `localqueue put ./data '{"to":"ada@example.com"}'`,
    "localqueue put ./data --queue emails --job-id-field id < emails.jsonl",
    `localqueue put ./data --delay-ms 60000 --job-id reminder-42 '{"remind":"ada"}'`,
  ],

  async run(args) {
    const make = itemMaker(args);
    const queue = openQueue(args, {
      serializer: TEXT,
      fsync: args.has("fsync") || undefined,
      maxRetries: args.integer("max-retries"),
    });
    try {
      const payloads = [...args.operands.slice(1), ...(args.rest ?? [])];
      if (payloads.length > 0) {
        tellReport(args, await putPayloads(payloads, { args, queue, make }));
        return EXIT.done;
      }
      if (process.stdin.isTTY) throw nothingToPut(args);
      if (fstatSync(0).isDirectory()) throw new Failure("Standard input is a directory: there are no lines to read.");
      if (args.has("job-id")) throw new Misuse("--job-id is for one payload; lines have --job-id-field NAME.");
      const { report, isComplete } = await putLines(queue, make);
      if (isComplete || args.has("json")) tellReport(args, report);
      return isComplete ? EXIT.done : EXIT.failed;
    } finally {
      await queue.close();
    }
  },
};

function itemMaker(args: Arguments): ItemMaker {
  const [delayMs, jobId, field] = [args.integer("delay-ms"), args.text("job-id"), args.text("job-id-field")];
  if (jobId !== undefined && field !== undefined) throw new Misuse("Give --job-id or --job-id-field, not both.");
  checked(() => new EnqueueItem(undefined, { delayMs, jobId }));
  return (payload) => {
    const value = parseJson(payload);
    if (field === undefined) {
      return delayMs === undefined && jobId === undefined ? payload : new EnqueueItem(payload, { delayMs, jobId });
    }
    const id = typeof value === "object" && value !== null && Object.hasOwn(value, field) && Reflect.get(value, field);
    if (typeof id !== "string") throw new Failure(`has no field "${field}" that is a text`);
    try {
      return new EnqueueItem(payload, { delayMs, jobId: id });
    } catch {
      // biome-ignore lint/style/useErrorCause: the message quotes the field, which is a part of the payload
      throw new Failure(`has no usable id in its field "${field}": 1 to 512 bytes without NUL or lone surrogates`);
    }
  };
}

/** All of them in one transaction, or none. */
async function putPayloads(
  payloads: readonly string[],
  { args, queue, make }: { readonly args: Arguments; readonly queue: SimpleQueue<string>; readonly make: ItemMaker },
): Promise<PutReport> {
  if (args.has("job-id") && payloads.length > 1) {
    throw new Misuse("--job-id is for one payload; several have --job-id-field NAME.");
  }
  const batches = new PutBatches(queue, () => {});
  for (const [index, payload] of payloads.entries()) {
    try {
      batches.add(make(trim(payload)));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const hint = `A text needs quotes of its own: '"hello"'.`;
      throw new Misuse(`Payload ${index + 1} ${error.message}. Nothing was put. ${hint}`, { cause: error });
    }
  }
  await batches.end();
  return batches.report;
}

function tellReport(args: Arguments, report: PutReport): void {
  if (args.has("json")) {
    printJson(report);
    return;
  }
  const known =
    report.known === 0 ? "" : ` (${grouped(report.known)} ${report.known === 1 ? "was" : "were"} known already)`;
  print(`Put ${jobs(report.put)} into queue "${queueName(args)}" of ${args.shownLocation}${known}`);
}

function nothingToPut(args: Arguments): Misuse {
  const line = shellLine(["localqueue", "put", args.shownLocation]);
  return new Misuse(`There is nothing to put. Type one of:
  ${line} '{"hello":"world"}'
  ${line} < jobs.jsonl`);
}
