// A process of one peer: opens its queue, and does what it is told, line by line. Runs in Node.js and in Bun.
import fs from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { adapters } from "../adapters/all.mjs";
import { payloadOf } from "../support/payload.mjs";

const SAY = 3;
/** How often a worker's handler says how many jobs there were; a peer that never yields does then. */
const REPORT_MS = 20;
const RSS_EVERY = 5_000;

const { name, mode, place } = JSON.parse(process.argv[2]);
const adapter = adapters.find((it) => it.name === name);
let queue;
let work;

/** Milliseconds of a clock that all processes of the machine share. */
const now = () => performance.timeOrigin + performance.now();

/** The pipe may be full, and does not block. */
function say(message) {
  let bytes = Buffer.from(`${JSON.stringify(message)}\n`);
  while (bytes.length > 0) {
    try {
      bytes = bytes.subarray(fs.writeSync(SAY, bytes));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

/** What a worker's handler notes: of each job, or of very many only how often each came. */
class Notes {
  handled = 0;
  ids = [];
  times = [];
  #counts;
  #reportedAt = 0;

  constructor(countOnly) {
    if (countOnly !== undefined) this.#counts = new Uint8Array(countOnly);
  }

  handle = (data) => {
    const at = now();
    if (this.#counts === undefined) {
      this.ids.push(data.n);
      this.times.push(at);
    } else {
      this.#counts[data.n]++;
    }
    this.handled++;
    if (at - this.#reportedAt < REPORT_MS) return undefined;
    this.#reportedAt = at;
    this.report();
    return turn();
  };

  report = () => say({ handled: this.handled });

  /** Jobs of the first `count` that did not come exactly once. */
  wrong(count) {
    return this.#counts.subarray(0, count).filter((times) => times !== 1).length;
  }
}

async function start({ slots, total, countOnly }) {
  const notes = new Notes(countOnly);
  const worker = await queue.work(Math.min(slots, adapter.maxSlots ?? slots), notes.handle, total);
  const timer = setInterval(notes.report, REPORT_MS);
  work = { notes, worker, timer };
}

async function stop() {
  await work.worker.stop();
  clearInterval(work.timer);
  return work.notes;
}

/** Puts so many jobs, or as long as it may, with so many calls in flight or so many jobs a call. */
async function put({ first, count = Number.POSITIVE_INFINITY, forMs = Number.POSITIVE_INFINITY, lanes, batch, bytes }) {
  const startedAt = now();
  let next = first;
  const more = () => next - first < count && now() - startedAt < forMs;
  const take = (many) => {
    const jobs = [];
    for (const end = Math.min(next + many, first + count); next < end; next++) jobs.push(payloadOf(next, bytes));
    return jobs;
  };
  const lane = async () => {
    while (more()) await queue.put(payloadOf(next++, bytes));
  };
  if (batch !== undefined && queue.putMany !== undefined) while (more()) await queue.putMany(take(batch));
  else if (queue.putTogether !== undefined) while (more()) await queue.putTogether(take(lanes));
  else await Promise.all(Array.from({ length: lanes }, lane));
  return { count: next - first, tookMs: now() - startedAt, startedAt };
}

/** Puts one job after the other, with pauses, and notes when. */
async function pace({ first, count, pauseMs }) {
  const times = [];
  for (let n = first; n < first + count; n++) {
    await sleep(pauseMs * (0.3 + Math.random() * 1.4));
    const payload = payloadOf(n);
    times.push(now());
    await queue.put(payload);
  }
  return { times };
}

/** Puts and handles jobs by the million, and notes how much memory that takes. */
async function churn({ count, batch, slots, forMs }) {
  const startedAt = now();
  await start({ slots, countOnly: count + batch });
  const samples = [];
  let put_ = 0;
  let sampleAt = 0;
  while (put_ < count && now() - startedAt < forMs) {
    put_ += (await put({ first: put_, count: batch, lanes: 100, batch })).count;
    while (work.notes.handled < put_ - batch) await sleep(1);
    if (work.notes.handled < sampleAt) continue;
    sampleAt = work.notes.handled + RSS_EVERY;
    samples.push([work.notes.handled, process.memoryUsage.rss()]);
  }
  while (work.notes.handled < put_) await sleep(1);
  const notes = await stop();
  return { samples, handled: notes.handled, wrong: notes.wrong(put_) };
}

function cpu() {
  const { user, system } = process.cpuUsage();
  return { cpuMs: (user + system) / 1000, at: now() };
}

const commands = {
  put,
  pace,
  churn,
  cpu,
  work: start,
  async stop() {
    const { ids, times } = await stop();
    return { ids, times };
  },
  left: async () => ({ left: await queue.left?.() }),
  durability: async () => ({ durability: await queue.durability?.() }),
  async close() {
    await queue.close();
    return {};
  },
};

try {
  queue = await adapter.open({ mode, place });
  say({ ok: {} });
  for await (const line of createInterface({ input: process.stdin })) {
    const { command, ...input } = JSON.parse(line);
    say({ ok: (await commands[command](input)) ?? {} });
    if (command === "close") break;
  }
} catch (error) {
  say({ error: String(error?.stack ?? error) });
}
// Some peers leave timers and sockets behind that would keep the process alive.
process.exit();
