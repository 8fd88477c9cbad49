import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { EXIT } from "./failures.ts";
import { print, printJson } from "./output.ts";
import { inspect, queueName } from "./queue-access.ts";
import { grouped } from "./wording.ts";

export const stats: Command = {
  name: "stats",
  summary: "Tell how many jobs of a queue are in each state.",
  operands: "<location>",
  options: { queue: QUEUE, json: JSON_REPORT },
  notes: [
    "ready       waits for a worker, or for its time",
    "processing  is with a worker",
    "acked       is done",
    "failed      is a dead letter: it was rejected, or its retries are used up",
  ],
  examples: ["localqueue stats ./data", "localqueue stats ./data --queue emails --json"],

  async run(args) {
    args.atMost(1);
    const counts = await inspect(args, (queue) => queue.stats());
    if (args.has("json")) {
      printJson(counts);
      return EXIT.done;
    }
    const rows = Object.entries(counts).map(([state, count]) => [state, grouped(count)] as const);
    const width = Math.max(...rows.map(([, count]) => count.length));
    print(`Queue "${queueName(args)}" of ${args.location}`);
    for (const [state, count] of rows) print(`${state.padEnd(10)}  ${count.padStart(width)}`);
    return EXIT.done;
  },
};
