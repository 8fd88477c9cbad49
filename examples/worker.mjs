import { SimpleQueue, Worker } from "localqueue";

const queue = new SimpleQueue("./data");

const worker = new Worker(queue, async (job) => {
  console.log(`Sending an email to ${job.data.to}`);
});

for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => worker.stop());
await worker.run(); // until stop()
await queue.close();
