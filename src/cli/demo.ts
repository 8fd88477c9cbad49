import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type QueueStats, SimpleQueue } from "../index.ts";
import { whatLacks } from "../storage/presence.ts";
import type { Command } from "./command.ts";
import { DEMO_JOBS, DEMO_QUEUE, type DemoJob, type DemoNews } from "./demo-jobs.ts";
import { checked, EXIT, Failure } from "./failures.ts";
import { print } from "./output.ts";
import { onFirstSignal } from "./signals.ts";
import { jobs, seconds, shellLine, withoutPassword } from "./wording.ts";

const DEADLINE_MS = 30_000;
const ENDS: readonly DemoNews["what"][] = ["job:acked", "job:failed"];

export const demo: Command = {
  name: "demo",
  summary: "Show in a few seconds what happens to jobs when workers fail.",
  operands: "[location]",
  options: {},
  notes: [
    'Without a location a temporary directory is used, and removed at the end. The queue is "demo".',
    "A worker is killed with kill -9 in the middle of a job; the counts are checked at the end.",
  ],
  examples: ["localqueue demo", "localqueue demo ./demo-data"],

  async run(args) {
    args.atMost(1);
    const given = args.operands[0];
    const location = given ?? mkdtempSync(path.join(tmpdir(), "localqueue-demo-"));
    const workers: ChildProcess[] = [];
    const cleanUp = (): void => {
      for (const worker of workers) worker.kill("SIGKILL");
      if (given === undefined) rmSync(location, { recursive: true, force: true, maxRetries: 10 }); // the killed may still write
    };
    process.once("exit", cleanUp);
    const forgetSignals = onFirstSignal(() => process.exit(EXIT.failed));
    const queue = checked(() => new SimpleQueue<DemoJob>(location, DEMO_QUEUE));
    try {
      await refuseIfUsed(queue, location);
      await play(queue, location, workers);
    } finally {
      await queue.close();
      forgetSignals();
    }
    tellWhatNext(given);
    return EXIT.done;
  },
};

async function refuseIfUsed(queue: SimpleQueue<DemoJob>, location: string): Promise<void> {
  if ((await whatLacks(location)) !== undefined) return;
  const { ready, processing, acked, failed } = await queue.stats();
  const count = ready + processing + acked + failed;
  if (count === 0) return;
  throw new Failure(
    `The queue "demo" of ${withoutPassword(location)} has ${jobs(count)} already. Choose another location.`,
  );
}

/** Throws if the story does not end as it should. */
async function play(queue: SimpleQueue<DemoJob>, location: string, workers: ChildProcess[]): Promise<void> {
  const startedAt = performance.now();
  const say = (text: string): void => print(`${seconds(performance.now() - startedAt).padStart(6)}  ${text}`);
  const news: DemoNews[] = [];
  const start = (name: string): ChildProcess => {
    const worker = fork(fileURLToPath(new URL("./demo-worker.js", import.meta.url)), [location]);
    worker.on("message", (one: DemoNews) => {
      news.push(one);
      say(`worker ${name} ${wordingOf(one)}`);
    });
    workers.push(worker);
    say(`worker ${name} starts, process ${worker.pid}`);
    return worker;
  };

  await queue.putMany(DEMO_JOBS);
  say(`${jobs(DEMO_JOBS.length)} are put into ${withoutPassword(location)}`);

  const victim = start("A");
  await until(() => news.some(({ what }) => what === "hangs in"));
  say(`kill -9 ${victim.pid}: nobody can say how far worker A came, so its job comes again when its lease ends`);
  victim.kill("SIGKILL");
  await once(victim, "exit");

  const successor = start("B");
  await until(() => news.filter(({ what }) => ENDS.includes(what)).length === DEMO_JOBS.length);
  successor.disconnect(); // asks it to end
  await once(successor, "exit");
  const stats = await queue.stats();
  const { acked, failed } = stats;
  say(`nothing is left: ${acked} acked, ${failed} failed`);
  check(stats, news, victim);
  print("\nEach job is accounted for, and only those that the accidents hit were delivered twice.");
}

function wordingOf({ what, id, attempt, job: { task }, reason }: DemoNews): string {
  const job = `job ${id} (${task})`;
  switch (what) {
    case "begins":
      return `begins ${job}, delivery ${attempt}`;
    case "hangs in":
      return `is in the middle of ${job}`;
    case "job:acked":
      return `has done ${job}`;
    case "job:retried":
      return `had no luck with ${job}: ${reason}; it comes again`;
    case "job:failed":
      return `rejects ${job}: ${reason}; it is a dead letter`;
  }
}

/** Two jobs were delivered twice, the others once, and one is a dead letter. */
function check(
  { ready, processing, acked, failed }: QueueStats,
  news: readonly DemoNews[],
  victim: ChildProcess,
): void {
  const deliveries = news.filter(({ what }) => what === "begins");
  const again = deliveries.filter(({ attempt }) => attempt === 2).map(({ job }) => job.mishap);
  const found = { ready, processing, acked, failed, deliveries: deliveries.length, again: again.sort() };
  const due = { ready: 0, processing: 0, acked: DEMO_JOBS.length - 1, failed: 1, deliveries: DEMO_JOBS.length + 2 };
  const expected = { ...due, again: ["no connection", "the worker hangs"] };
  if (JSON.stringify(found) === JSON.stringify(expected) && victim.signalCode === "SIGKILL") return;
  throw new Failure(`This does not add up: ${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`);
}

function tellWhatNext(given: string | undefined): void {
  const location = withoutPassword(given ?? "./data");
  print("\nTry next:");
  if (given !== undefined) print(`  ${shellLine(["localqueue", "stats", location, "--queue", "demo"])}`);
  print(`  ${shellLine(["localqueue", "put", location, '{"to":"ada@example.com"}'])}`);
  print(`  ${shellLine(["localqueue", "work", location, "--drain", "--", "cat"])}`);
  if (given === undefined) print(`  ${shellLine(["localqueue", "stats", location])}`);
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + DEADLINE_MS;
  while (!condition()) {
    if (performance.now() > deadline) throw new Failure("The demo takes too long: something is wrong.");
    await sleep(20);
  }
}
