// How long claims are delayed while a million finished jobs are purged, or old ones are removed by a retention.
import path from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "../../dist/index.js";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";
import { claimInTurns } from "./support/claims.mjs";
import { tellChecked, tellValue } from "./support/figures.mjs";
import { fill } from "./support/fill.mjs";
import { number, perSecond, time } from "./support/format.mjs";
import { Program } from "./support/program.mjs";
import { withNewQueue, withQueue } from "./support/queue.mjs";
import { percentile } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const ROWS = sized(1_000_000, 3_000);
const CALM_MS = sized(8_000, 300);
/** The first pass begins a second after the worker. */
const RETENTION_MS = sized(10_000, 1_500);
const DAY = 86_400_000;

/** What claims take while `work` runs: those of another process, and those of this one through `queue`. */
async function delaysDuring(directory, queue, work) {
  const delays = { there: [], here: [] };
  let more = true;
  let counted = false;
  const note = (side) => (some) => counted && delays[side].push(...some);
  const program = new Program("claimer", { directory });
  await program.hear();
  const listening = (async () => {
    while (more) note("there")(await program.hear());
  })();
  const claiming = claimInTurns(queue, () => more, note("here"));
  await sleep(CALM_MS / 4);
  counted = true;
  await work();
  counted = false;
  more = false;
  await Promise.all([listening, claiming]);
  await program.dismiss();
  return delays;
}

const SIDES = { there: "another process", here: "the same process" };

await withNewQueue({}, async (queue, directory) => {
  fill(directory, "acked", ROWS, Date.now() - 2 * DAY);
  const calm = await delaysDuring(directory, queue, () => sleep(CALM_MS));
  let tookMs = 0;
  let purged = 0;
  const busy = await delaysDuring(directory, queue, async () => {
    const start = performance.now();
    purged = await queue.purge({ olderThanMs: DAY });
    tookMs = performance.now() - start;
  });
  if (purged !== ROWS) throw new Error(`${purged} jobs were purged instead of ${ROWS}.`);
  assertCounts(await queue.stats(), directory);
  tellValue(`purge of ${number(ROWS)} jobs: time`, undefined, tookMs, time, "beside claims of two processes");
  for (const [side, where] of Object.entries(SIDES)) {
    const p99 = percentile(busy[side], 99);
    const without = time(percentile(calm[side], 99));
    const detail = `over ${number(busy[side].length)} claims, the longest ${time(Math.max(...busy[side]))}; p99 without ${without}`;
    tellValue(`claim in ${where} meanwhile: p99`, { atMost: 50 }, p99, time, detail);
  }
});

/** What claims take beside a worker that is busy with one job all the time, on a queue with this retention. */
function delaysBesideWorker(directory, queue, retention) {
  return withQueue(directory, { retention }, async (kept) => {
    let finish = () => undefined;
    const finished = new Promise((resolve) => {
      finish = resolve;
    });
    const worker = new Worker(kept, () => finished);
    return delaysDuring(directory, queue, async () => {
      const running = worker.run();
      await sleep(RETENTION_MS);
      finish();
      await worker.stop();
      await running;
    });
  });
}

await withNewQueue({}, async (queue, directory) => {
  fill(directory, "acked", ROWS, Date.now() - 2 * DAY);
  const calm = await delaysBesideWorker(directory, queue, undefined);
  const busy = await delaysBesideWorker(directory, queue, { ackedMs: DAY });
  const removed = ROWS - oldJobs(directory);
  if (removed === 0) throw new Error("The retention removed nothing.");
  for (const [side, where] of Object.entries(SIDES)) {
    const [own, without] = [busy, calm].map((delays) => percentile(delays[side], 99));
    const detail = `${time(own)}, and ${time(without)} without; over ${number(busy[side].length)} claims`;
    tellValue(`claim in ${where} beside a retention: added to the p99`, { atMost: 10 }, own - without, time, detail);
  }
  const rate = (removed * 1000) / RETENTION_MS;
  tellValue("the retention removes meanwhile", undefined, rate, perSecond, "at most a hundredth of the time");
  assertCounts(await queue.stats(), directory);
});
tellChecked("the counts are right", "exactly", "after all of that, in both files");

/** Asks the file, past the queue. */
function ask(directory, sql, parameters) {
  const db = loadDriver().open(path.join(directory, "localqueue.db"));
  const [row] = db.prepare(sql).all(parameters);
  db.close();
  return row;
}

function oldJobs(directory) {
  return ask(directory, "SELECT count(*) AS jobs FROM messages WHERE created_at < :at", { at: Date.now() - DAY }).jobs;
}

function assertCounts(stats, directory) {
  const { ready, acked } = ask(directory, "SELECT sum(status = 0) AS ready, sum(status = 2) AS acked FROM messages");
  if (ready !== stats.ready || acked !== stats.acked)
    throw new Error(`The counts are wrong: ${JSON.stringify(stats)}.`);
}
