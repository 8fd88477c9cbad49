// A worker that does what its jobs ask for.
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue, Worker } from "localqueue";
import { input, say, told } from "./lines.mjs";

const queue = new SimpleQueue(input.location, input.options);
const worker = new Worker(queue, handle, input.workerOptions);

async function handle({ id, receipt, attempt, data }) {
  say("handling", { id, receipt, attempt, data });
  if (data.kills) process.kill(process.pid, "SIGKILL");
  if (data.blocksMs) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, data.blocksMs);
  if (data.waitsMs) await sleep(data.waitsMs);
  if (data.throws) throw new Error(data.throws);
  say("handled", { id, receipt });
}

for (const event of ["job:acked", "job:retried", "job:failed", "lease:lost"]) {
  worker.on(event, ({ job: { id, receipt, attempt } }) => say(event, { id, receipt, attempt }));
}
worker.on("error", ({ error }) => say("error", { error: `${error.name} ${error.code}: ${error.message}` }));

const running = worker.run();
say("running");
for await (const _ of told());
await queue.close();
await running;
