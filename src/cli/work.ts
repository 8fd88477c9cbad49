import { type SimpleQueue, Worker } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { Children } from "./children.ts";
import { type Command, FSYNC, JSON_REPORT, QUEUE } from "./command.ts";
import { watchForEnd } from "./drain.ts";
import { checked, EXIT, Misuse } from "./failures.ts";
import { canBeStarted, runCommand } from "./job-command.ts";
import { printJson, tell } from "./output.ts";
import { BYTES, openQueue, queueName } from "./queue-access.ts";
import { onFirstSignal } from "./signals.ts";
import { grouped, jobs, seconds } from "./wording.ts";
import { reportOn, type WorkReport } from "./work-report.ts";

const GRACE_MS = 30_000;

export const work: Command = {
  name: "work",
  summary: "Run a command for each job; its exit code says what becomes of the job.",
  operands: "<location>",
  runsProgram: true,
  options: {
    queue: QUEUE,
    concurrency: { value: "N", help: "Jobs at a time (default 1)." },
    drain: { help: "End when no job is left, neither ready nor delayed nor with a worker." },
    "lease-ms": { value: "MS", help: "After which time a killed worker's jobs come again (default 60000)." },
    "timeout-ms": { value: "MS", help: "How long the command may run for a job (default: for ever)." },
    "grace-ms": { value: "MS", help: "How long it may go on after a time-out or a signal (default 30000)." },
    fsync: FSYNC,
    json: JSON_REPORT,
  },
  notes: [
    "The command finds the payload on its standard input, and in its environment LOCALQUEUE_ID,",
    "LOCALQUEUE_ATTEMPT, LOCALQUEUE_QUEUE and, if the job has one, LOCALQUEUE_JOB_ID. No shell is involved.",
    "Exit code 0: the job is done. 65: a dead letter at once. 75, any other, or a signal: it comes again.",
    "SIGINT and SIGTERM let running commands finish; a second one kills them.",
  ],
  examples: [
    "localqueue work ./data -- node send-email.mjs",
    "localqueue work ./data --concurrency 4 --drain -- sh -c 'cat >> jobs.jsonl; echo >> jobs.jsonl'",
    "localqueue work ./data --queue emails --timeout-ms 60000 -- ./send-email --retry-later",
  ],

  async run(args) {
    args.atMost(1);
    const [program, ...programArgs] = args.rest ?? [];
    const { location } = args;
    if (program === undefined) throw new Misuse(`The command is missing: localqueue work ${location} -- COMMAND`);
    const graceMs = args.integer("grace-ms") ?? GRACE_MS;
    const queue = openQueue(args, {
      serializer: BYTES,
      fsync: args.has("fsync") || undefined,
      leaseMs: args.integer("lease-ms"),
    });
    try {
      const children = new Children();
      const handler = runCommand(children, { queue: queueName(args), program, args: programArgs, graceMs });
      const [concurrency, timeoutMs] = [args.integer("concurrency"), args.integer("timeout-ms")];
      const worker = checked(() => new Worker(queue, handler, { concurrency, timeoutMs, graceMs }));
      if (!canBeStarted(program)) throw new Misuse(`There is no command "${program}" that can be run.`);
      return await serve(args, { queue, worker, children, graceMs });
    } finally {
      await queue.close();
    }
  },
};

interface Serving {
  readonly queue: SimpleQueue<Uint8Array>;
  readonly worker: Worker<Uint8Array>;
  readonly children: Children;
  readonly graceMs: number;
}

/** Until a signal, or the end of the jobs; what becomes of the jobs is told meanwhile. */
async function serve(args: Arguments, { queue, worker, children, graceMs }: Serving): Promise<number> {
  const report = reportOn(worker);
  let isDone = !args.has("drain");
  const forgetSignals = onFirstSignal(() => {
    if (children.count > 0) {
      tell(`Stopping: ${jobs(children.count)} may run for ${seconds(graceMs)} more; a second signal kills at once.`);
    }
    void worker.stop();
  });
  const kill = (): void => children.kill();
  process.on("exit", kill); // the second signal, and whatever else ends this process before its time
  const running = worker.run();
  const endWatch = args.has("drain")
    ? watchForEnd(queue, worker, {
        isIdle: () => children.count === 0,
        drained: () => {
          isDone = true;
          void worker.stop();
        },
      })
    : undefined;
  try {
    await running;
  } finally {
    endWatch?.();
    forgetSignals();
    process.off("exit", kill);
    children.kill(); // the worker waits no longer for those that are left, if any
    summarize(args, report);
  }
  return isDone ? EXIT.done : EXIT.failed;
}

function summarize(args: Arguments, { acked, retried, failed }: WorkReport): void {
  if (args.has("json")) printJson({ acked, retried, failed });
  else tell(`${grouped(acked)} acked, ${grouped(retried)} retried, ${grouped(failed)} failed`);
}
