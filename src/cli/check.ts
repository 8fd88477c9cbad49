import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { EXIT } from "./failures.ts";
import { runLong } from "./long-task.ts";
import { paint, print, printJson } from "./output.ts";
import { inspect } from "./queue-access.ts";
import { printable, seconds } from "./wording.ts";

export const check: Command = {
  name: "check",
  summary: "Tell whether the database file is intact; exit code 1 if it is not.",
  operands: "<location>",
  options: {
    queue: QUEUE,
    quick: { help: "Do not compare the indexes with the rows: much faster." },
    "max-errors": { value: "N", help: "How many faults to tell (default 100)." },
    json: JSON_REPORT,
  },
  notes: ["The whole file is read, beside the work that goes on."],
  examples: ["localqueue check ./data", "localqueue check ./data --quick --json"],

  async run(args) {
    args.atMost(1);
    const options = {
      mode: args.has("quick") ? "quick" : "full",
      maxErrors: args.integerFrom("max-errors", 1, 1_000, 100),
    } as const;
    const result = await runLong(inspect, args, "Checking", (queue, onProgress) =>
      queue.checkIntegrity({ ...options, onProgress }),
    );
    if (args.has("json")) printJson(result);
    else {
      if (!result.ok) print(result.messages.map(printable).join("\n"));
      const verdict = result.ok ? "is intact" : paint("red", "is damaged");
      print(`${args.shownLocation} ${verdict} (${options.mode} check, ${seconds(result.elapsedMs)})`);
    }
    return result.ok ? EXIT.done : EXIT.failed;
  },
};
