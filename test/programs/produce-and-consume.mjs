// Puts its share of the jobs, and claims and acknowledges whatever comes along until the test says that it is over.
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue, Worker } from "localqueue";
import { input, say, told } from "./lines.mjs";

const { location, name, jobs, byHand } = input;
const queue = new SimpleQueue(location);
const claimed = [];
const acked = [];

async function produce() {
  for (let i = 0; i < jobs; ) {
    // Alone, several at once, and in batches.
    if (i % 3 === 0) await queue.put(`${name}-${i++}`);
    else if (i % 3 === 1) await Promise.all(next(20).map((data) => queue.put(data)));
    else await queue.putMany(next(50));
    await sleep(0);
    function next(count) {
      const first = i;
      i = Math.min(jobs, i + count);
      return Array.from({ length: i - first }, (_, more) => `${name}-${first + more}`);
    }
  }
}

const note = ({ id, receipt, data, attempt }) => claimed.push([id, receipt, data, attempt]);

async function consumeByHand(signal) {
  while (!signal.aborted) {
    const batch = await queue.getMany(20, { signal }).catch((error) => {
      if (!signal.aborted) throw error;
      return [];
    });
    batch.forEach(note);
    await Promise.all(batch.map(async (job) => job.ack().then(() => acked.push(job.id))));
  }
}

const over = new AbortController();
const worker = new Worker(queue, note, { concurrency: 8 });
worker.on("job:acked", ({ job }) => acked.push(job.id));
worker.on("error", ({ error }) => say("error", { error: String(error) }));
worker.on("lease:lost", ({ job }) => say("error", { error: `lost ${job.id}` }));

say("ready");
const line = told();
await line.next();
const consuming = byHand ? consumeByHand(over.signal) : worker.run({ signal: over.signal });
await produce();
say("produced");
await line.next();
over.abort();
await consuming;
say("result", { claimed, acked });
await queue.close();
