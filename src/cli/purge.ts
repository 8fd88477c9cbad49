import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { EXIT, Misuse } from "./failures.ts";
import { runLong } from "./long-task.ts";
import { print, printJson } from "./output.ts";
import { again, queueTitle } from "./queue-access.ts";
import { jobs } from "./wording.ts";

export const purge: Command = {
  name: "purge",
  summary: "Delete the acked jobs that were done some time ago.",
  operands: "<location>",
  options: {
    queue: QUEUE,
    "older-than": { value: "TIME", help: "How long ago: 90s, 15m, 12h, 30d, 2w, or milliseconds." },
    "include-failed": { help: "Delete the dead letters of that time, too." },
    json: JSON_REPORT,
  },
  notes: ["A jobId is known only as long as its job is kept. Jobs that others still refer to are kept."],
  examples: [
    "localqueue purge ./data --older-than 30d",
    "localqueue purge ./data --queue emails --older-than 12h --include-failed",
  ],

  async run(args) {
    args.atMost(1);
    const olderThanMs = args.duration("older-than");
    if (olderThanMs === undefined) {
      throw new Misuse(`Say how old the jobs must be: ${again(args, "purge", "--older-than", "30d")}`);
    }
    const request = { olderThanMs, includeFailed: args.has("include-failed") };
    const purged = await runLong(args, "Purging", (queue) => queue.purge(request));
    if (args.has("json")) printJson({ purged });
    else print(`${jobs(purged)} deleted: ${queueTitle(args)}`);
    return EXIT.done;
  },
};
