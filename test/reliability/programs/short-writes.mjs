// Does what it is told with a queue, one thing after the other, and records it; its files may be kept from growing.
import path from "node:path";
import { input, say, told } from "../../programs/lines.mjs";
import { History } from "./history.mjs";
import { RecordedQueue } from "./recorded-queue.mjs";

const { location, histories, fsync } = input;
const name = String(process.pid);
const history = new History(path.join(histories, `${name}.jsonl`), name);
const open = () => new RecordedQueue({ location, queue: "jobs", fsync, history });
let queue = open();
let payloads = 0;
const held = [];

const verbs = {
  put: (bytes) => queue.put([{ payload: `${name}.${++payloads} `.padEnd(bytes, "x"), delayMs: 0, maxAttempts: 9 }]),
  claim: async (limit) => held.push(...(await queue.claim(limit, 2_000, 0))),
  ack: () => held.length > 0 && queue.settle(held.shift(), "ack"),
  reopen: async () => {
    await queue.close();
    queue = open();
  },
};

say("running", { pid: process.pid });
for await (const { verb, argument } of told()) say("did", { well: (await verbs[verb](argument)) !== undefined });
await queue.close();
