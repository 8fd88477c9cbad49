// Puts its jobs, one call after the other, and says how far it is.
import { EnqueueItem, SimpleQueue } from "localqueue";
import { input, say, told } from "../../programs/lines.mjs";
import { History } from "./history.mjs";

const history = new History(input.history);
const queue = new SimpleQueue(input.location, { maxPendingJobs: input.maxPendingJobs });

const orders = told();
const { value: batches } = await orders.next();
for (const batch of batches) {
  for (const { jobId } of batch) history.invoke("put", { job: jobId });
  const [only] = batch;
  const rows =
    batch.length === 1
      ? [await queue.put(only, { jobId: only.jobId })]
      : await queue.putMany(batch.map((job) => new EnqueueItem(job, { jobId: job.jobId })));
  for (const [index, { id }] of rows.entries()) history.ok("put", { job: batch[index].jobId, id });
  say("put");
}
say("all put");
for await (const _ of orders);
await queue.close();
