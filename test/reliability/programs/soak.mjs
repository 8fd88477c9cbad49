// Does what a service does all day, as fast as it may, and tells now and then what it takes.
import { readdirSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Retry, SimpleQueue, Worker } from "localqueue";
import { BusTopology, defineEvent, EventBus } from "localqueue/bus";
import { input, say, told } from "../../programs/lines.mjs";
import { Random } from "../../support/random.mjs";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

const { location, everyMs } = input;
const random = new Random(input.seed);
const KEPT_MS = 2_000;
const counts = { put: 0, done: 0, again: 0, doubled: 0, busy: 0 };
const MOST_READY = 300;

/** The jobs that this process has finished, or is about to: nothing is delivered twice without a reason. */
const working = new Set();

async function handle(job) {
  if (working.has(job.id)) counts.doubled++;
  working.add(job.id);
  try {
    if (random.below(10) === 0) await sleep(random.below(20));
    if (job.attempt === 1 && random.below(20) === 0) {
      counts.again++;
      throw new Retry({ delayMs: random.below(200) });
    }
    counts.done++;
  } finally {
    working.delete(job.id);
  }
}

const open = (name, options = {}) => new SimpleQueue(location, { name, ...options });
const jobs = open("jobs");
const worker = new Worker(jobs, handle, { concurrency: 8 });
const hand = open("by hand", { fsync: true });

const Ordered = defineEvent("ordered");
const Mailed = defineEvent("mailed");
const topology = new BusTopology({ orders: [Ordered], mails: [Ordered, Mailed] });
const bus = new EventBus(location, { topology });
const [orders, mails] = ["orders", "mails"].map((name) => bus.subscription(name));
orders.handler(Ordered, ({ data }, { emit }) => {
  counts.done++;
  if (data.n % 2 === 0) {
    counts.put++;
    emit(Mailed(data));
  }
});
for (const event of [Ordered, Mailed]) {
  mails.handler(event, () => {
    counts.done++;
  });
}

let ending = false;
const faults = [];
for (const emitter of [worker, bus]) emitter.on("error", ({ error }) => faults.push(String(error)));
worker.on("lease:lost", ({ job }) => faults.push(`lost ${job.id}`));

async function hasRoom(queue) {
  if ((await queue.stats()).ready < MOST_READY) return true;
  await sleep(20);
  return false;
}

/** Whoever waits for so short may find the lock taken all the time. */
function unlessBusy(error) {
  if (error.code !== "BUSY") throw error;
  counts.busy++;
  return [];
}

const payload = () => ({
  n: random.below(1_000),
  text: "x".repeat(random.below(random.below(50) === 0 ? 50_000 : 500)),
});

const habits = [
  async () => {
    if (!(await hasRoom(jobs))) return;
    const many = Array.from({ length: random.between(1, 20) }, payload);
    if (random.below(2) === 0) await jobs.putMany(many);
    else await Promise.all(many.map((each) => jobs.put(each)));
    counts.put += many.length;
  },
  async () => {
    await bus.dispatch(Ordered(payload()));
    counts.put += 2;
    await sleep(random.below(10));
  },
  async () => {
    await hand.put(payload());
    const batch = await hand.getMany(5, { timeoutMs: 50 }).catch(unlessBusy);
    await Promise.all(batch.map((job) => job.ack()));
  },
  // Waits in vain, and gives up.
  async () => {
    const queue = open("nothing");
    await queue.getMany(1, { timeoutMs: random.below(20) }).catch(unlessBusy);
    const impatient = AbortSignal.timeout(random.below(20));
    await queue.get({ signal: impatient }).catch((error) => {
      if (!impatient.aborted) throw error;
    });
    await queue.close();
  },
  async () => {
    const queue = open(`short-lived ${random.below(10)}`);
    const { id } = await queue.put(payload());
    await queue.remove(id);
    await queue.close();
    await sleep(5);
  },
  async () => {
    for (const each of [jobs, hand, orders, mails]) await each.purge({ olderThanMs: KEPT_MS });
    await sleep(1_000);
  },
];

async function keep(habit) {
  while (!ending) await habit();
}

const delays = monitorEventLoopDelay({ resolution: 10 });

function takes() {
  collectGarbage();
  const { rss, heapUsed, external } = process.memoryUsage();
  return {
    ...counts,
    faults,
    rss,
    heap: heapUsed + external,
    resources: process.getActiveResourcesInfo().length,
    // A descriptor of a directory of /proc, which is closed again: of no concern to SQLite.
    descriptors: readdirSync("/proc/self/fd").length,
    delayMs: delays.percentile(99.9) / 1e6,
  };
}

const running = [worker.run(), bus.run(), ...habits.map(keep)];
say("running");
const timer = setInterval(() => {
  say("takes", takes());
  delays.reset();
}, everyMs);
delays.enable();
const lines = told();
await lines.next();
ending = true;
await Promise.all(running.slice(2));
say("finished putting");
await lines.next();
await Promise.all([worker.stop(), bus.close()]);
await Promise.all(running);
clearInterval(timer);
say("ended", takes());
await Promise.all([jobs.close(), hand.close()]);
