// Puts, claims and acknowledges as fast as it can, and records it, until the power goes.
import { input, say } from "../../programs/lines.mjs";
import { History } from "./history.mjs";
import { Random } from "./random.mjs";
import { RecordedQueue } from "./recorded-queue.mjs";

const LANES = 4;
const HOUR_MS = 3_600_000;

const random = new Random(input.seed);
const history = new History(input.history);
const queue = new RecordedQueue({ location: input.location, queue: "default", history, fsync: input.fsync });
let payloads = 0;

function job() {
  const payload = `${input.seed}.${process.pid}.${++payloads}`;
  const large = random.below(10) === 0 ? random.between(3_000, 30_000) : 0;
  return { payload: payload.padEnd(large, "·x"), jobId: undefined, delayMs: 0, maxAttempts: 3 };
}

async function work() {
  for (;;) {
    await queue.put(Array.from({ length: random.below(4) === 0 ? random.between(2, 20) : 1 }, job));
    if (random.below(2) === 0) continue;
    for (const lease of await queue.claim(random.between(1, 5), HOUR_MS, 0)) await queue.settle(lease, "ack");
  }
}

await queue.storage.stats();
say("running");
await Promise.all(Array.from({ length: LANES }, work));
