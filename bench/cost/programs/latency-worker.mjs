// Notes when each handler starts, and tells once all jobs were there.
import { SimpleQueue, Worker } from "../../../dist/index.js";

const { directory, jobs } = JSON.parse(process.argv[2]);
const queue = new SimpleQueue(directory);
const started = [];

const worker = new Worker(queue, ({ id }) => {
  started.push({ id, at: process.hrtime.bigint() });
});
worker.on("job:acked", () => {
  if (started.length === jobs) process.send(started);
});
process.once("disconnect", () => worker.stop());

await queue.stats();
process.send("open");
await worker.run();
await queue.close();
