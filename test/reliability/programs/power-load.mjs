// Puts, claims and acknowledges as fast as it can, and records it, until the power goes.
import { input, say } from "../../programs/lines.mjs";
import { Random } from "../../support/random.mjs";
import { History } from "./history.mjs";
import { RecordedQueue } from "./recorded-queue.mjs";

const LANES = 4;
const HOUR_MS = 3_600_000;

const random = new Random(input.seed);
const history = new History(input.history);
const queue = new RecordedQueue({ location: input.location, queue: "default", history, fsync: input.fsync });
let payloads = 0;

function job() {
  const payload = `${input.seed}.${process.pid}.${++payloads}`;
  const large = random.below(6) === 0 ? random.between(3_000, 60_000) : 0;
  return { payload: payload.padEnd(large, "·x"), jobId: undefined, delayMs: 0, maxAttempts: 3 };
}

const jobs = (least, most) => Array.from({ length: random.between(least, most) }, job);

/** One by one, in a transaction, or by as many callers at once. */
const puts = {
  one: () => queue.put(jobs(1, 1)),
  many: () => queue.put(jobs(2, 20)),
  burst: () => Promise.all(jobs(10, 40).map((each) => queue.put([each]))),
};

async function work() {
  for (;;) {
    await puts[random.weighted({ one: 6, many: 2, burst: 1 })]();
    if (random.below(2) === 0) continue;
    for (const lease of await queue.claim(random.between(1, 5), HOUR_MS, 0)) await queue.settle(lease, "ack");
  }
}

await queue.storage.stats();
say("running");
await Promise.all(Array.from({ length: LANES }, work));
