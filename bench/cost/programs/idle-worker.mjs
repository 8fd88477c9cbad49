// Handles a few jobs, then measures what it costs to have none.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue, Worker } from "../../../dist/index.js";

const { directory, slots, settleMs, measureMs } = JSON.parse(process.argv[2]);
const queue = new SimpleQueue(directory);
const worker = new Worker(queue, () => {}, { concurrency: slots });
process.once("disconnect", () => worker.stop());

const handled = new Promise((resolve) => {
  let acked = 0;
  worker.on("job:acked", () => {
    if (++acked === slots) resolve();
  });
});

async function measure() {
  await handled;
  await sleep(settleMs);
  const start = performance.now();
  const before = process.resourceUsage();
  await sleep(measureMs);
  const after = process.resourceUsage();
  const cpuMs = (after.userCPUTime - before.userCPUTime + after.systemCPUTime - before.systemCPUTime) / 1000;
  const wakeUps = after.voluntaryContextSwitches - before.voluntaryContextSwitches;
  process.send({ cpuMs, elapsedMs: performance.now() - start, wakeUps });
}

await queue.stats();
process.send("open");
await Promise.all([worker.run(), measure()]);
await queue.close();
