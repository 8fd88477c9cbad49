// Does everything that can be done with queues, at random, and records it, until it is killed or told to end.
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { input, say, told } from "../../programs/lines.mjs";
import { Random } from "../../support/random.mjs";
import { History } from "./history.mjs";
import { RecordedQueue } from "./recorded-queue.mjs";

const { location, seed, deletes, limit, deaths = [], tolerated = deaths.length > 0 ? ["IO"] : [] } = input;
const name = `${seed}.${process.pid}`;
const random = new Random(seed * 7919 + input.number);
const history = new History(path.join(input.histories, `${name}.jsonl`), name);
const open = (queue, settings = {}) => new RecordedQueue({ location, queue, history, ...settings });

/** Jobs taken by hand; deliveries of a consumer; jobs that are deleted; at most so many at a time. */
const queues = {
  orders: open("orders", { fsync: true }),
  mails: open("mails"),
  bin: open("bin"),
  few: open("few", { maxPendingJobs: limit }),
};
/** Whose engine is asked for them dies. */
const doomed = Object.fromEntries(deaths.map((how) => [how, open(`doomed: ${how}`)]));
const engines = [];
process.on("worker", (thread) => {
  if (thread.threadName === undefined || thread.threadName === "localqueue") engines.push(thread);
  thread.once("exit", () => engines.splice(engines.indexOf(thread), 1));
});
const MAX_READY = 300;
const MAIL_SLOTS = 3;
queues.mails.consume(MAIL_SLOTS, 600);

let ending = false;
let payloads = 0;
const held = [];
const past = [];
const finished = [];

function payload() {
  const text = `${name}.${++payloads}`;
  return random.below(20) === 0 ? text.padEnd(random.between(5_000, 60_000), "·x") : text;
}

function job(queue) {
  // What several processes put, of which each may be there once.
  const jobId = queue === queues.orders && random.below(4) === 0 ? `shared ${random.below(2_000)}` : undefined;
  const delayMs = random.below(4) === 0 ? random.below(400) : 0;
  return { payload: payload(), jobId, delayMs, maxAttempts: random.between(2, 6) };
}

function event(queueNames) {
  const n = random.below(2_000);
  const isShared = random.below(3) === 0;
  const body = isShared ? `event ${n}` : payload();
  const jobId = isShared ? `event ${n} ${random.pick(["a", "b"])}` : `event ${body.slice(0, 40)}`;
  const identity = isShared ? { key: `key ${n}`, fingerprint: `${n}` } : undefined;
  return { payload: body, jobId, queues: queueNames, identity, maxAttempts: 4 };
}

async function mayPut(queue) {
  return (await queue.storage.stats()).ready < MAX_READY;
}

const actions = {
  put: async (queue = random.pick([queues.orders, queues.mails, queues.bin])) => {
    if (await mayPut(queue)) await queue.put([job(queue)]);
  },
  putMany: async (queue = random.pick([queues.orders, queues.mails, queues.bin])) => {
    if (await mayPut(queue)) await queue.put(Array.from({ length: random.between(2, 20) }, () => job(queue)));
  },
  putFew: async () => {
    await queues.few.put([job(queues.few)], { timeoutMs: random.pick([0, 50]) });
  },
  dispatch: async () => {
    if (await mayPut(queues.mails)) await queues.orders.dispatch([event(["orders", "mails"]), event(["mails"])]);
  },
  claim: async (queue = random.pick([queues.orders, queues.bin, queues.few])) => {
    const claimed = await queue.claim(random.between(1, 20), random.between(200, 1_500), random.pick([0, 100]));
    held.push(...claimed.map((lease) => ({ queue, lease })));
  },
  settle: async () => {
    const [one] = held.splice(random.below(held.length), 1);
    if (one === undefined) return;
    past.push(one);
    if (past.length > 50) past.shift();
    const how = random.weighted({ ack: 8, nack: 2, fail: 1, release: 1, forget: 0.5 });
    if (how === "forget") return;
    const state = await one.queue.settle(one.lease, how, { delayMs: random.pick([0, 0, 100, 300]) });
    if (one.queue === queues.bin && state !== undefined) finished.push(one.lease.id);
  },
  /** What is over already must be refused. */
  settleAgain: async () => {
    const one = random.pick(past);
    if (one !== undefined) await one.queue.settle(one.lease, random.pick(["ack", "nack", "fail", "release"]));
  },
  extend: async () => {
    const one = random.pick(held);
    if (one !== undefined) await one.queue.extend(one.lease, random.between(300, 1_500));
  },
  alter: async () => {
    const id = random.pick(finished);
    if (deletes && id !== undefined) await queues.bin.alter(random.pick(["remove", "replay", "discard"]), id);
  },
  sweep: async () => {
    if (!deletes) return;
    if (random.below(2) === 0) await queues.bin.purge(random.pick([0, 100]), random.below(2) === 0);
    else await queues.bin.replayAll();
  },
  look: async () => {
    const { storage } = queues.orders;
    if (random.below(2) === 0) {
      await storage.list({ state: "ready", limit: 20 });
      return;
    }
    const { ok } = await storage.checkIntegrity({ mode: "full", maxErrors: 10 });
    if (!ok) say("damaged");
  },
  /** The engine's thread ends in one of the ways that the test gave. */
  die: async () => {
    const how = random.pick(deaths);
    if (how === "terminated") await engines.at(-1)?.terminate();
    else await doomed[how].storage.stats().catch(() => {});
    say("died", { how });
  },
};

const WEIGHTS = {
  put: 8,
  putMany: 2,
  putFew: 6,
  dispatch: 2,
  claim: 5,
  settle: 30,
  settleAgain: 1,
  extend: 3,
  alter: 1,
  sweep: 0.3,
  look: 0.1,
  die: deaths.length > 0 ? 0.5 : 0,
};

async function act() {
  while (!ending) {
    const action = held.length > 60 ? "settle" : random.weighted(WEIGHTS);
    await actions[action]().catch((error) => {
      // Looks, of which no history is kept, fail with what is under them.
      if (!tolerated.includes(error.code)) throw error;
    });
    // So that the histories do not grow without end.
    await sleep(random.below(6));
  }
}

async function workOn(slot) {
  const { mails } = queues;
  while (!ending) {
    const delivery = await mails.take(slot, 100);
    if (delivery === undefined) continue;
    await sleep(random.below(10));
    const how = random.weighted({ ack: 8, nack: 1, fail: 0.5, release: 0.5 });
    const emit = how === "ack" && random.below(3) === 0 ? [event(["orders"])] : undefined;
    await mails.settleTaken(slot, delivery, how, { delayMs: random.pick([0, 100]), emit });
  }
}

await queues.orders.storage.stats();
say("running");
const acting = [...Array.from({ length: 8 }, act), ...Array.from({ length: MAIL_SLOTS }, (_, slot) => workOn(slot))];
for await (const _ of told());
ending = true;
await Promise.all(acting);
await Promise.all([...Object.values(queues), ...Object.values(doomed)].map((queue) => queue.close()));
