// Works off what is left in some queues, records it, and tells in a file what there is in the end.
import fs from "node:fs";
import path from "node:path";
import { STATES } from "../../../dist/state.js";
import { loadDriver } from "../../../dist/storage/sqlite/driver.js";
import { input, say } from "../../programs/lines.mjs";
import { History } from "./history.mjs";
import { nameOf, RecordedQueue } from "./recorded-queue.mjs";

const { location, histories } = input;
const name = `drain.${process.pid}`;
const history = new History(path.join(histories, `${name}.jsonl`), name);
let drained = true;

for (const queue of input.queues) {
  const recorded = new RecordedQueue({ location, queue, history });
  const deadline = performance.now() + input.seconds * 1000;
  const isDone = async () => {
    const { ready, processing } = await recorded.storage.stats();
    return ready + processing === 0;
  };
  while (!(await isDone()) && performance.now() < deadline) {
    const claimed = await recorded.claim(500, 30_000, 500);
    await Promise.all(claimed.map((lease) => recorded.settle(lease, "ack")));
  }
  drained &&= await isDone();
  await recorded.close();
}

const db = loadDriver().open(path.join(location, "localqueue.db"));
const rows = db.prepare("SELECT * FROM messages ORDER BY id").all();
db.close();
const jobs = rows.map((row) => ({
  id: row.id,
  queue: row.queue,
  payload: nameOf(row.payload),
  state: STATES[row.status],
  attempts: row.attempts,
  maxAttempts: row.max_attempts,
  jobId: row.job_id ?? undefined,
  key: row.dedup_key ?? undefined,
}));
const file = path.join(histories, "rows.json");
fs.writeFileSync(file, JSON.stringify(jobs));
say("drained", { drained, file });
