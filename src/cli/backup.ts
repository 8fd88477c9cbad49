import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { EXIT, Misuse } from "./failures.ts";
import { runLong } from "./long-task.ts";
import { print, printJson } from "./output.ts";
import { again, inspect } from "./queue-access.ts";
import { seconds, size } from "./wording.ts";

export const backup: Command = {
  name: "backup",
  summary: "Copy the database into a new directory while the work goes on, and check the copy.",
  operands: "<location> <directory>",
  options: { queue: QUEUE, json: JSON_REPORT },
  notes: [
    "The directory must not exist yet, its parent must. It holds all queues of the file, and is a <location>.",
    "A PostgreSQL database is backed up with its own tools, such as pg_dump.",
  ],
  examples: ["localqueue backup ./data ./backups/monday", 'localqueue backup ./data "./backups/$(date +%F)" --json'],

  async run(args) {
    args.atMost(2);
    const { operands, shownLocation } = args;
    const directory = operands[1];
    if (!directory) throw new Misuse(`Say where to: ${again(args, "backup")} ./backups/monday`);
    const result = await runLong(inspect, args, "Backing up", (queue, onProgress) =>
      queue.backup(directory, { onProgress }),
    );
    if (args.has("json")) printJson(result);
    else {
      const { databaseSizeBytes, elapsedMs } = result;
      print(`${shownLocation} is in ${directory}: ${size(databaseSizeBytes)}, verified, ${seconds(elapsedMs)}`);
    }
    return EXIT.done;
  },
};
