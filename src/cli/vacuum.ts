import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { EXIT } from "./failures.ts";
import { runLong } from "./long-task.ts";
import { print, printJson } from "./output.ts";
import { inspect } from "./queue-access.ts";
import { seconds } from "./wording.ts";

export const vacuum: Command = {
  name: "vacuum",
  summary: "Give the space of deleted jobs back to the file system.",
  operands: "<location>",
  options: { queue: QUEUE, json: JSON_REPORT },
  notes: [
    "The whole file is written anew, and nobody can put meanwhile.",
    "It is refused while a job is being processed, of whatever queue.",
  ],
  examples: ["localqueue vacuum ./data"],

  async run(args) {
    args.atMost(1);
    const startedAt = performance.now();
    await runLong(inspect, args, "Vacuuming", (queue) => queue.vacuum());
    const elapsedMs = Math.round(performance.now() - startedAt);
    if (args.has("json")) printJson({ elapsedMs });
    else print(`${args.shownLocation} has been vacuumed in ${seconds(elapsedMs)}`);
    return EXIT.done;
  },
};
