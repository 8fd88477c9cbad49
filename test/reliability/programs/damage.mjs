// Puts jobs and works them off while somebody damages the file, until nothing is taken any more; then does nothing.
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue, Worker } from "localqueue";
import { input, say } from "../../programs/lines.mjs";

/** Slow enough that there are still jobs that it has not read when the file is damaged. */
const WORK_MS = 20;
/** So often it is tried again, at once. */
const TIRED = 50;
const IDLE_MS = 1_000;

const queue = new SimpleQueue(input.location);
let [refused, confirmed, afterwards] = [0, 0, 0];
const worker = new Worker(queue, () => sleep(WORK_MS), { concurrency: 2 });
const running = worker.run().then(
  () => say("worker", { code: "ended well" }),
  ({ code }) => say("worker", { code }),
);
while (refused < TIRED) {
  try {
    await queue.put("x".repeat(1_000));
    confirmed++;
    if (confirmed === 20) say("running");
    if (refused > 0) afterwards++;
  } catch ({ name, code, outcome }) {
    refused++;
    if (refused === 1) say("refused", { name, code, outcome });
  }
}
const before = process.cpuUsage();
await sleep(IDLE_MS);
const { user, system } = process.cpuUsage(before);
say("tired", { confirmed, afterwards, busy: (user + system) / 1000 / IDLE_MS });
await worker.stop();
await running;
await queue.close();
say("closed");
