// Works off what is left in some queues, and records it.
import path from "node:path";
import { input, say } from "../../programs/lines.mjs";
import { History } from "./history.mjs";
import { RecordedQueue } from "./recorded-queue.mjs";

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

say("drained", { drained });
