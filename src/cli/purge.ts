import type { FailedDetails } from "../index.ts";
import { type Command, JSON_REPORT } from "./command.ts";
import { EXIT, Misuse } from "./failures.ts";
import { runLong } from "./long-task.ts";
import { print, printJson } from "./output.ts";
import type { Place } from "./place.ts";
import { again } from "./queue-access.ts";
import { jobs } from "./wording.ts";

export function purge<Letter extends FailedDetails>(place: Place<Letter>): Command {
  const { kind, unit, inspect, forgotten } = place;
  const name = `${place.prefix}purge`;
  const [usual, other] = place.typed;
  return {
    name,
    summary: `Delete the acked ${unit}s of a ${kind} that were done some time ago.`,
    operands: "<location>",
    options: {
      ...place.options,
      "older-than": { value: "TIME", help: "How long ago: 90s, 15m, 12h, 30d, 2w, or milliseconds." },
      "include-failed": { help: "Delete the dead letters of that time, too." },
      json: JSON_REPORT,
    },
    notes: [forgotten, "Those that others still refer to are kept."],
    examples: [
      `localqueue ${name} ${usual} --older-than 30d`,
      `localqueue ${name} ${other} --older-than 12h --include-failed`,
    ],

    async run(args) {
      args.atMost(1);
      const olderThanMs = args.duration("older-than");
      if (olderThanMs === undefined) {
        throw new Misuse(`Say how old the ${unit}s must be: ${again(args, name, "--older-than", "30d")}`);
      }
      const request = { olderThanMs, includeFailed: args.has("include-failed") };
      const purged = await runLong(inspect, args, "Purging", (holder) => holder.purge(request));
      if (args.has("json")) printJson({ purged });
      else print(`${jobs(purged, unit)} deleted: ${place.title(args)}`);
      return EXIT.done;
    },
  };
}
