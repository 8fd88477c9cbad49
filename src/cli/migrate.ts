import { type MigrationReport, migrate as migrateAll } from "../storage/migration.ts";
import { whatLacks } from "../storage/presence.ts";
import { type Command, JSON_REPORT } from "./command.ts";
import { checkedLater, EXIT, Failure, Misuse } from "./failures.ts";
import { print, printJson } from "./output.ts";
import { whileShown } from "./progress.ts";
import { onFirstSignal } from "./signals.ts";
import { printTable } from "./table.ts";
import { grouped, jobs, printable, seconds, shellLine, withoutPassword } from "./wording.ts";

export const migrate: Command = {
  name: "migrate",
  summary: "Move all queues from a directory to PostgreSQL, or back.",
  operands: "<location> <location>",
  options: {
    restart: { help: "Forget what an earlier attempt has written to the target." },
    json: JSON_REPORT,
  },
  notes: [
    "Stop all programs that use the first location. Jobs keep their ids and states, dead letters their reasons.",
    "Whatever happens on the way, either all has been moved or nothing: type the same again, and it goes on.",
    "The first location is left as it is. Move it away afterwards, lest its jobs are done once more.",
  ],
  examples: [
    "localqueue migrate ./data postgres://app@db.example.com/app",
    "localqueue migrate 'postgres://app@db.example.com/app?schema=jobs' ./data --json",
  ],

  async run(args) {
    args.atMost(2);
    const from = args.location;
    const to = args.operands[1];
    if (!to) throw new Misuse(`Say where to: ${shellLine(["localqueue", "migrate", args.shownLocation])} postgres://…`);
    const [shownFrom, shownTo] = [args.shownLocation, withoutPassword(to)];
    const lacks = await checkedLater(whatLacks(from));
    await checkedLater(whatLacks(to)); // whether it can be reached
    if (lacks !== undefined) throw new Failure(`There is no queue in ${shownFrom}: it has no ${lacks}.`);
    const startedAt = performance.now();
    const again = shellLine(["localqueue", "migrate", shownFrom, shownTo]);
    const report = await interruptible(again, (signal) =>
      whileShown("Migrating", (onProgress) =>
        checkedLater(migrateAll(from, to, { restart: args.has("restart"), signal, onProgress })),
      ),
    );
    const elapsedMs = Math.round(performance.now() - startedAt);
    if (args.has("json")) printJson({ ...report, elapsedMs });
    else tellReport(report, { shownFrom, shownTo, elapsedMs });
    return EXIT.done;
  },
};

/** A signal ends it between two steps. */
async function interruptible<T>(again: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const interruption = new AbortController();
  const forgetSignals = onFirstSignal(() =>
    interruption.abort(new Failure(`Interrupted: nothing has been moved. To go on, type ${again}`)),
  );
  try {
    return await work(interruption.signal);
  } finally {
    forgetSignals();
  }
}

function tellReport(
  { queues, jobs: count, wasDone }: MigrationReport,
  {
    shownFrom,
    shownTo,
    elapsedMs,
  }: { readonly shownFrom: string; readonly shownTo: string; readonly elapsedMs: number },
): void {
  if (wasDone) {
    print(`${shownFrom} has been moved to ${shownTo} before: nothing was done`);
    return;
  }
  print(`${jobs(count)} moved from ${shownFrom} to ${shownTo} in ${seconds(elapsedMs)}, all counts agree`);
  if (queues.length > 0) {
    printTable(
      ["queue", "ready", "processing", "acked", "failed"],
      queues.map(({ queue, ready, processing, acked, failed }) => [
        printable(queue),
        ...[ready, processing, acked, failed].map(grouped),
      ]),
    );
  }
  print(`${shownFrom} was left as it is: move it away before a program is started on it again`);
}
