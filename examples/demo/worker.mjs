// A worker's process: handles webhooks until its parent lets go. usage: worker.mjs <directory> <ledger> [accident]
import { SimpleQueue, Worker } from "localqueue";
import { prepareAccident } from "./accident.mjs";
import { record } from "./ledger.mjs";
import { digest } from "./payloads.mjs";
import { QUEUE } from "./settings.mjs";

const CONCURRENCY = 4;

const [, , directory, ledger, accidentAfter] = process.argv;
const accident = prepareAccident(Number(accidentAfter ?? Number.POSITIVE_INFINITY), CONCURRENCY);

async function handle(job) {
  const { event, payload } = job.data;
  const { id, jobId, attempt } = job;
  await record(ledger, { id, jobId, attempt, event, digest: digest(payload), at: Date.now() });
  if (attempt > 1) process.send({ takeover: { id, attempt } });
  await accident(job);
}

const queue = new SimpleQueue(directory, QUEUE);
const worker = new Worker(queue, handle, { concurrency: CONCURRENCY });

const stop = new AbortController();
process.once("disconnect", () => stop.abort()); // also when demo.mjs itself dies
process.on("SIGINT", () => {}); // Ctrl-C reaches every process; demo.mjs ends them all

await worker.run({ signal: stop.signal });
await queue.close();
