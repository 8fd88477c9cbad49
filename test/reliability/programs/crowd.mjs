// One of very many: opens a queue, puts some jobs, takes as many, and acknowledges them, and records it; then waits to
// be told to end.
import path from "node:path";
import { input, say, told } from "../../programs/lines.mjs";
import { History } from "./history.mjs";
import { RecordedQueue } from "./recorded-queue.mjs";

const { location, histories, jobs, leaseMs } = input;
const name = String(process.pid);
const history = new History(path.join(histories, `${name}.jsonl`), name);

say("started");
// All of them begin at the same moment.
const orders = told();
await orders.next();
const queue = new RecordedQueue({ location, queue: "jobs", history });
for (let n = 0; n < jobs; n++) {
  await queue.put([{ payload: `${name}.${n}`, delayMs: 0, maxAttempts: 9 }]);
  // Whose job it gets is up to chance.
  const [lease] = await queue.claim(1, leaseMs, 1_000);
  say("holds", { n });
  if (lease !== undefined) await queue.settle(lease, "ack");
}
say("done");
await orders.next();
await queue.close();
