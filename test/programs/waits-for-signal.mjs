// Runs a handler that holds nothing which keeps a process alive: it waits for its signal alone.
import { SimpleQueue, Worker } from "localqueue";
import { input, say } from "./lines.mjs";

const queue = new SimpleQueue(input.location, { leaseMs: 500 });
await queue.put("job");
const worker = new Worker(
  queue,
  (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  { timeoutMs: 1_000, retry: () => 60_000 },
);
worker.on("job:retried", ({ error }) => {
  say("retried", { error: error.name });
  void worker.stop();
});
if (input.once) await worker.runOnce();
else await worker.run();
await queue.close();
say("closed");
