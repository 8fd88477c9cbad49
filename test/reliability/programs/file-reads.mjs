// Puts jobs and records it until it is told to end. Between them it looks at the files of the queue as the test says,
// at any moment, or closes the queue and opens it anew.
import fs from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { input, say, told } from "../../programs/lines.mjs";
import { Random } from "../../support/random.mjs";
import { History } from "./history.mjs";
import { RecordedQueue } from "./recorded-queue.mjs";

const { location, histories, seed, look, everyMs, reopens } = input;
const name = `${seed}.${process.pid}`;
const random = new Random(seed);
const history = new History(path.join(histories, `${name}.jsonl`), name);
const open = () => new RecordedQueue({ location, queue: "jobs", history });
const file = (end) => path.join(location, `localqueue.db${end}`);

const read = (end) => {
  try {
    fs.readFileSync(file(end));
  } catch (error) {
    // Whoever closes the file last removes it.
    if (error.code !== "ENOENT") throw error;
  }
};
const looks = {
  "reads the database": () => read(""),
  "reads the log": () => read("-wal"),
  "reads the shared memory": () => read("-shm"),
  "copies everything": () => ["", "-wal", "-shm"].forEach(read),
  "asks what there is": () => {
    if (!fs.existsSync(file(""))) return;
    fs.accessSync(file(""));
    fs.chmodSync(file(""), 0o600);
    for (const each of fs.readdirSync(location)) fs.statSync(path.join(location, each), { throwIfNoEntry: false });
  },
};

let [ending, looked] = [false, 0];
async function lookAround() {
  while (!ending) {
    await sleep(random.next() * 2 * everyMs); // at any moment
    looks[look]();
    looked++;
  }
}

async function put() {
  let queue = open();
  for (let n = 0; !ending; n++) {
    const done = await queue.put([{ payload: `${name}.${n}`, delayMs: 0, maxAttempts: 9 }]);
    if (n === 0) say("running");
    if (done !== undefined && !reopens) continue;
    // Where the files were replaced only a new queue helps, and what is refused is refused at once.
    await queue.close();
    await sleep(1);
    queue = open();
  }
  await queue.close();
}

const warnings = [];
process.on("warning", ({ code }) => warnings.push(code));
const putting = input.puts ? put() : say("running");
const orders = told();
await orders.next();
const looking = look && lookAround();
await orders.next();
ending = true;
await Promise.all([putting, looking]);
say("ended", { warnings, looks: looked });
