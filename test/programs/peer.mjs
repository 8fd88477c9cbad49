// Another process on the same queue: does what it is told over IPC (see test/support/peer.ts).
import { SimpleQueue, Worker } from "localqueue";

const [directory, options] = process.argv.slice(2);
const queue = new SimpleQueue(directory, JSON.parse(options));

const verbs = {
  put: (data, putOptions) => queue.put(data, putOptions),
  get: async (getOptions) => {
    const { id, data, attempt, receipt } = await queue.get(getOptions);
    return { id, data, attempt, receipt };
  },
  ack: (job) => queue.ack(job),
  stats: () => queue.stats(),
  /** Handles jobs until none is left; resolves to their payloads. */
  drain: async (concurrency) => {
    const seen = [];
    const worker = new Worker(queue, (job) => void seen.push(job.data), { concurrency });
    const running = worker.run();
    for (;;) {
      const { ready, processing } = await queue.stats();
      if (ready + processing === 0) break;
    }
    await worker.stop();
    await running;
    return seen;
  },
};

process.on("message", async ({ call, verb, args }) => {
  try {
    process.send({ call, value: await verbs[verb](...args) });
  } catch (error) {
    process.send({ call, code: error.code ?? String(error) });
  }
});
