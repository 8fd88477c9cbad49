// Does a little of everything, of which single system calls fail, and records it; ends however it fares.
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { input, say } from "../../programs/lines.mjs";
import { History } from "./history.mjs";
import { RecordedQueue } from "./recorded-queue.mjs";

const { location, histories } = input;
const PATIENCE_MS = 5_000;
const history = new History(path.join(histories, `${process.pid}.jsonl`));
const open = (queue, fsync) => new RecordedQueue({ location, queue, fsync, history });
let payloads = 0;
const jobs = (n) => Array.from({ length: n }, () => ({ payload: `job ${++payloads}`, delayMs: 0, maxAttempts: 9 }));
const event = (queues) => ({ payload: `event ${++payloads}`, jobId: `event ${payloads}`, queues, maxAttempts: 9 });

async function doEverything(orders, mails) {
  await orders.put(jobs(1));
  await Promise.all([orders.put(jobs(20)), mails.put(jobs(1)), orders.put(jobs(1))]);
  await orders.dispatch([event(["orders", "mails"])]);
  const [first, second, third, fourth, fifth] = await orders.claim(5, 3_000, 1_000);
  if (first) await orders.settle(first, "ack", { emit: [event(["mails"])] });
  if (second) await orders.settle(second, "nack");
  if (third) await orders.settle(third, "fail");
  if (fourth) await orders.extend(fourth, 4_000);
  if (fifth) await orders.settle(fifth, "release");
  mails.consume(1, 3_000);
  const taken = await mails.take(0, 1_000);
  if (taken) await mails.settleTaken(0, taken, "ack");
  // Enough for the log to be moved into the database.
  for (let i = 0; i < 4; i++)
    await mails.put([{ ...jobs(1)[0], payload: `large ${++payloads} ${"x".repeat(300_000)}` }]);
  await orders.purge(0, true);
  await mails.storage.checkIntegrity({ mode: "full", maxErrors: 10 }).catch(() => {});
}

/** Whether a put succeeds before long. */
async function isWell(queue) {
  for (const deadline = performance.now() + PATIENCE_MS; performance.now() < deadline; ) {
    if ((await queue.put(jobs(1))) !== undefined) return true;
    await sleep(100);
  }
  return false;
}

process.on("unhandledRejection", (error) => {
  say("unhandled", { error: String(error) });
});
let well = true;
for (let round = 0; round < 2 && well; round++) {
  const [orders, mails] = [open("orders", true), open("mails", false)];
  // What cannot even be opened need not be asked for everything.
  well = await isWell(orders);
  if (well) await doEverything(orders, mails);
  well &&= await isWell(orders);
  await Promise.all([orders.close(), mails.close()]);
}
if (!well) say("ill");
