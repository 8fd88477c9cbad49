// A thread that puts its share of the jobs, and claims and acknowledges until all are done.
import { parentPort, workerData } from "node:worker_threads";
import { SimpleQueue } from "localqueue";

const { location, name, jobs, total } = workerData;
const queue = new SimpleQueue(location);
const producing = Promise.all(Array.from({ length: jobs }, (_, i) => queue.put(`${name}-${i}`)));
const seen = [];
while ((await queue.stats()).acked < total) {
  for (const job of await queue.getMany(10, { timeoutMs: 20 })) {
    seen.push([job.data, job.receipt]);
    await job.ack();
  }
}
await producing;
await queue.close();
parentPort.postMessage(seen);
