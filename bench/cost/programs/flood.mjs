// Puts without awaiting, up to a number or until the queue refuses; then a worker takes what was accepted.
import { performance } from "node:perf_hooks";
import { SimpleQueue, Worker } from "../../../dist/index.js";
import { assertExact, assertStats } from "../support/exact.mjs";
import { peakRss } from "../support/memory.mjs";
import { payload } from "../support/payload.mjs";

/** Reactions to refusals run at microtasks only, and commits are not heard of in them: the flood goes on. */
const CALLS_PER_LOOK = 100;

const { directory, puts, textBytes } = JSON.parse(process.argv[2]);
const queue = new SimpleQueue(directory);
const text = "x".repeat(textBytes);
await queue.stats();
const before = process.memoryUsage.rss();
const start = performance.now();

let refused = false;
const refuse = (error) => {
  if (error.code !== "BUSY") throw error;
  refused = true;
  return undefined;
};
const calls = [];
while (calls.length < puts && !refused) {
  calls.push(queue.put({ ...payload, text }).catch(refuse));
  if (calls.length % CALLS_PER_LOOK === 0) await undefined;
}
const answers = await Promise.all(calls);
const tookMs = performance.now() - start;
const peak = peakRss();

const accepted = answers.flatMap((answer) => (answer === undefined ? [] : [answer.id]));
const delivered = [];
const worker = new Worker(queue, ({ id }) => void delivered.push(id), { concurrency: 100 });
let acked = 0;
worker.on("job:acked", () => {
  if (++acked === accepted.length) void worker.stop();
});
await worker.run();
assertExact(accepted, delivered);
await assertStats(queue, { acked: accepted.length });
await queue.close();
process.send({ before, peak, tookMs, accepted: accepted.length });
