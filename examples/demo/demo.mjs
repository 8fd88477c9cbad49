// A producer and three workers, each a process of its own, share one queue, and one worker is killed in the middle of
// its jobs. The exit code is 0 only if every payload was handled and every repeated delivery has its reason.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue } from "localqueue";
import { Crew } from "./crew.mjs";
import { readLedger } from "./ledger.mjs";
import { payloads, ROUNDS } from "./payloads.mjs";
import { report } from "./report.mjs";
import { QUEUE } from "./settings.mjs";
import { number, secondsSoFar, tell, tellProgress, tellWithTime } from "./story.mjs";

const WORKERS = ["A", "B", "C"];
const VICTIM = "B";
const ACCIDENT_AFTER_JOBS = 100;
const DEADLINE_MS = 60_000;

const directory = mkdtempSync(path.join(tmpdir(), "localqueue-demo-"));
const crew = new Crew(giveUp);

/** What the processes have said so far. */
const news = { produced: undefined, victim: VICTIM, held: [], killedAt: 0 };

async function main() {
  tell(`${payloads.length} webhook payloads from GitHub, each put ${ROUNDS} times, and three workers that handle them`);
  for (const worker of WORKERS) startWorker(worker);
  startProducer();

  const queue = new SimpleQueue(directory, QUEUE);
  const stats = await everythingHandled(queue);
  await crew.dismiss();
  await queue.close();

  tell();
  const problems = report({ entries: await readLedgers(), stats, ...news });
  for (const problem of problems.slice(0, 10)) tell(`PROBLEM: ${problem}`);
  tell(problems.length === 0 ? `It all adds up, after ${secondsSoFar().toFixed(1)} s.` : `${problems.length} problems`);
  if (problems.length > 0) process.exitCode = 1;
}

function startProducer() {
  const pid = crew.start("the producer", "producer.mjs", [directory], (message) => {
    news.produced = message;
    const { inserted, insertedAgain, again } = message;
    tellWithTime(
      `the producer has put ${number(inserted)} jobs; of ${again} repeated ones, ${insertedAgain} were added`,
    );
  });
  tellWithTime(`the producer starts, process ${pid}`);
}

function startWorker(worker) {
  const args = [directory, ledgerOf(worker), ...(worker === VICTIM ? [ACCIDENT_AFTER_JOBS] : [])];
  const pid = crew.start(`worker ${worker}`, "worker.mjs", args, ({ inside, takeover }) => {
    if (inside !== undefined) killVictim(pid, inside);
    if (takeover !== undefined) tellWithTime(`worker ${worker} got job ${takeover.id}, attempt ${takeover.attempt}`);
  });
  tellWithTime(`worker ${worker} starts, process ${pid}`);
}

/** Its handlers have done their work, and it has not said so: nobody can know, and the jobs are delivered again. */
function killVictim(pid, inside) {
  tellWithTime(`worker ${VICTIM} is inside ${inside.length} handlers: kill -9 ${pid}`);
  crew.kill(`worker ${VICTIM}`);
  news.held = inside;
  news.killedAt = Date.now();
}

async function everythingHandled(queue) {
  for (;;) {
    const stats = await queue.stats();
    tellProgress(stats);
    if (news.produced !== undefined && stats.ready + stats.processing === 0) return stats;
    await sleep(50);
  }
}

async function readLedgers() {
  const ledgers = WORKERS.map(async (worker) => {
    const entries = await readLedger(ledgerOf(worker));
    return entries.map((entry) => ({ ...entry, worker }));
  });
  return (await Promise.all(ledgers)).flat();
}

function ledgerOf(worker) {
  return path.join(directory, `worker-${worker}.jsonl`);
}

/** Nothing is left behind, however this ends. */
function cleanUp() {
  crew.killAll();
  rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
}

function giveUp(why) {
  tell(`FAILED: ${why}`);
  cleanUp();
  process.exit(1);
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => giveUp(`stopped by ${signal}`));
setTimeout(() => giveUp(`not done after ${DEADLINE_MS / 1_000} s`), DEADLINE_MS).unref();

try {
  await main();
  cleanUp();
} catch (error) {
  giveUp(error.stack);
}
