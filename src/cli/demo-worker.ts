/** A worker of the demo, in a process of its own: started with an IPC channel, and the location as its argument. */

import { setTimeout as sleep } from "node:timers/promises";
import { type Job, Reject, Retry, SimpleQueue, Worker } from "../index.ts";
import { DEMO_QUEUE, type DemoJob, type DemoNews } from "./demo-jobs.ts";

const queue = new SimpleQueue<DemoJob>(process.argv[2] as string, DEMO_QUEUE);

const worker = new Worker(queue, async (job) => {
  tell("begins", job);
  await sleep(150); // as if it sent a mail
  if (job.data.mishap === "no such address") throw new Reject("no such address", { category: "address" });
  if (job.attempt > 1) return;
  if (job.data.mishap === "no connection") throw new Retry({ delayMs: 500, reason: "no connection" });
  if (job.data.mishap === "the worker hangs") {
    tell("hangs in", job);
    await new Promise(() => {}); // until it is killed
  }
});

worker.on("job:acked", ({ job }) => tell("job:acked", job));
worker.on("job:retried", ({ job, error }) => tell("job:retried", job, (error as Error).message));
worker.on("job:failed", ({ job, error }) => tell("job:failed", job, (error as Error).message));

process.once("disconnect", () => worker.stop());
await worker.run();
await queue.close();

function tell(what: DemoNews["what"], { id, attempt, data }: Job<DemoJob>, reason?: string): void {
  const news: DemoNews = { what, id, attempt, job: data, ...(reason !== undefined && { reason }) };
  process.send?.(news, undefined, undefined, () => {}); // it may have been dismissed
}
