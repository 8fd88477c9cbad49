import type { QueueStats } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { type Command, JSON_REPORT, QUEUE } from "./command.ts";
import { EXIT, Misuse } from "./failures.ts";
import { outgrown } from "./outgrown.ts";
import { print, printJson, tell } from "./output.ts";
import { prometheusText } from "./prometheus.ts";
import { again, inspect, queueTitle } from "./queue-access.ts";
import { watchStats } from "./stats-watch.ts";
import { grouped } from "./wording.ts";

export const stats: Command = {
  name: "stats",
  summary: "Tell how many jobs of a queue are in each state.",
  operands: "<location>",
  options: {
    queue: QUEUE,
    watch: { help: "Tell it again and again, with rates, until Ctrl-C." },
    interval: { value: "MS", help: "How often, with --watch (default 1000)." },
    prometheus: { help: "Print metrics in the text format of Prometheus." },
    json: JSON_REPORT,
  },
  notes: [
    "ready       waits for a worker, or for its time",
    "processing  is with a worker",
    "acked       is done",
    "failed      is a dead letter: it was rejected, or its retries are used up",
  ],
  examples: [
    "localqueue stats ./data",
    "localqueue stats ./data --queue emails --json",
    "localqueue stats ./data --watch --interval 500",
    "localqueue stats ./data --prometheus > /var/lib/node_exporter/localqueue.prom",
  ],

  async run(args) {
    args.atMost(1);
    const intervalMs = args.integerFrom("interval", 100, 3_600_000, 1_000);
    if (args.has("interval") && !args.has("watch")) {
      throw new Misuse(`--interval is for --watch: ${again(args, "stats", "--watch", "--interval", `${intervalMs}`)}`);
    }
    if (args.has("prometheus") && (args.has("watch") || args.has("json"))) {
      throw new Misuse(`--prometheus stands alone: ${again(args, "stats", "--prometheus")}`);
    }
    await inspect(args, async (queue) => {
      if (args.has("watch")) await watchStats(args, queue, intervalMs);
      else if (args.has("prometheus")) print(prometheusText(await queue.diagnostics()));
      else report(args, await queue.stats());
    });
    return EXIT.done;
  },
};

function report(args: Arguments, counts: QueueStats): void {
  if (args.has("json")) printJson(counts);
  else {
    const rows = Object.entries(counts).map(([state, count]) => [state, grouped(count)] as const);
    const width = Math.max(...rows.map(([, count]) => count.length));
    print(queueTitle(args));
    for (const [state, count] of rows) print(`${state.padEnd(10)}  ${count.padStart(width)}`);
  }
  const warning = outgrown(counts, again(args, "purge"));
  if (warning !== undefined) tell(warning);
}
