// What a runtime must be able to do, without a test framework: one line for each check, a closing line at the end.
// Started with a role, it is one of the other processes. See scripts/test-runtimes.mjs.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { EmptyError, LeaseExpiredError, SimpleQueue, Worker } from "../../dist/index.js";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";

const SELF = fileURLToPath(import.meta.url);
const RUN = process.versions.deno === undefined ? [] : ["run", "--allow-all"];
const DEADLINE_MS = 60_000;
const LEASE_MS = 1_000;

const ROLES = {
  /** Handles jobs until it is told to end, and tells which. */
  async racer(directory) {
    const queue = new SimpleQueue(directory);
    const worker = new Worker(queue, ({ data }) => console.log(data), { concurrency: 4 });
    const running = worker.run();
    await once(process.stdin.resume(), "end");
    await worker.stop();
    await running;
    await queue.close();
  },

  /** Claims a job, tells its number, and never ends by itself. */
  async holder(directory) {
    const queue = new SimpleQueue(directory, { leaseMs: LEASE_MS });
    const worker = new Worker(queue, async ({ id }) => {
      console.log(id);
      await sleep(10 * DEADLINE_MS);
    });
    await worker.run();
  },

  /** Holds the write lock until its standard input ends. */
  async locker(directory) {
    const database = loadDriver().open(path.join(directory, "localqueue.db"));
    database.exec("BEGIN IMMEDIATE");
    console.log("locked");
    await once(process.stdin.resume(), "end");
    database.exec("ROLLBACK");
    database.close();
  },

  /** Ends without a word to its queue. */
  async forgetful(directory) {
    const queue = new SimpleQueue(directory);
    await queue.put("left behind");
    console.log("put");
  },
};

const CHECKS = {
  async "put, putMany and claim"(directory) {
    const queue = open(directory);
    same(await queue.put({ text: "größer", list: [1, null] }), { id: 1, inserted: true });
    same(await queue.put("again", { jobId: "a" }), { id: 2, inserted: true });
    same(await queue.put("again", { jobId: "a" }), { id: 2, inserted: false });
    same(await queue.putMany(Array.from({ length: 100 }, (_, n) => n)).then((all) => all.length), 100);
    const jobs = await queue.getMany(102);
    same(jobs[0].data, { text: "größer", list: [1, null] });
    same(
      jobs.slice(2).map(({ data }) => data),
      Array.from({ length: 100 }, (_, n) => n),
    );
    await Promise.all(jobs.map((job) => job.ack()));
    same(await queue.stats(), { ready: 0, processing: 0, acked: 102, failed: 0 });
    same(await rejection(queue.getNowait()).then((error) => error instanceof EmptyError), true);
    same(await rejection(jobs[0].ack()).then((error) => error instanceof LeaseExpiredError), true);
  },

  async "a nack with a delay, then a dead letter"(directory) {
    const queue = open(directory, { maxRetries: 1 });
    await queue.put("a job");
    const first = await queue.get();
    await first.nack({ delayMs: 300, lastError: new Error("not now") });
    same(await rejection(queue.getNowait()).then(({ code }) => code), "EMPTY");
    const second = await queue.get({ timeoutMs: 10_000 });
    same([second.id, second.attempt], [first.id, 2]);
    await second.nack();
    same(await queue.stats(), { ready: 0, processing: 0, acked: 0, failed: 1 });
  },

  async "a worker runs several handlers at a time, and keeps a lease while a handler blocks the event loop"(directory) {
    const queue = open(directory, { leaseMs: LEASE_MS });
    await queue.putMany(["block", ...Array.from({ length: 20 }, () => "wait")]);
    let [running, most, lost] = [0, 0, 0];
    const attempts = [];
    const worker = new Worker(
      queue,
      async ({ data, attempt }) => {
        attempts.push(attempt);
        most = Math.max(most, ++running);
        if (data === "block") block(2.5 * LEASE_MS);
        await until(() => most === 4);
        running--;
      },
      { concurrency: 4 },
    );
    worker.on("lease:lost", () => lost++);
    const ran = worker.run();
    await until(async () => (await queue.stats()).acked === 21);
    await worker.stop();
    await ran;
    same({ most, lost, attempts }, { most: 4, lost: 0, attempts: attempts.map(() => 1) });
    same(attempts.length, 21);
  },

  async "two processes race for jobs, and each job goes to one"(directory) {
    const queue = open(directory);
    const racers = [start("racer", directory), start("racer", directory)];
    const jobs = Array.from({ length: 2_000 }, (_, n) => String(n));
    for (let n = 0; n < jobs.length; n += 100) await queue.putMany(jobs.slice(n, n + 100));
    await until(async () => (await queue.stats()).acked === jobs.length);
    for (const { child } of racers) child.stdin.end();
    same(await Promise.all(racers.map(({ ended }) => ended)), [CLEAN, CLEAN]);
    const seen = racers.flatMap(({ lines }) => lines);
    same(
      seen.sort((a, b) => a - b),
      jobs,
    );
  },

  async "a call waits for the lock of another process, as long as it may"(directory) {
    const queue = open(directory);
    await queue.put("first");
    const locker = start("locker", directory);
    await until(() => locker.lines.length > 0);
    same(await rejection(queue.put("impatient", { timeoutMs: 100 })).then(({ code }) => code), "BUSY");
    const second = queue.put("second");
    locker.child.stdin.end();
    same(await second, { id: 2, inserted: true });
    same(await locker.ended, CLEAN);
  },

  async "the time-out of a handler is kept, however old the process is when it opens the queue"(directory) {
    await until(() => performance.now() > LEASE_MS);
    const queue = open(directory);
    await queue.put("a job");
    const started = performance.now();
    const worker = new Worker(queue, (_, { signal }) => once(signal, "abort"), { timeoutMs: 200 });
    same(await worker.runOnce(), true);
    same(performance.now() - started < 200 + LEASE_MS / 2, true);
  },

  async "a waiting call wakes up when another process puts"(directory) {
    const queue = open(directory);
    const waiting = queue.get({ timeoutMs: 20_000 });
    same(await start("forgetful", directory).ended, CLEAN);
    same((await waiting).data, "left behind");
  },

  async "the job of a process that is killed is delivered again"(directory) {
    const queue = open(directory);
    const { id } = await queue.put("a job");
    const holder = start("holder", directory);
    await until(() => holder.lines.length > 0);
    // Its lease is renewed as long as it lives.
    same(await rejection(queue.get({ timeoutMs: 2 * LEASE_MS })).then(({ code }) => code), "EMPTY");
    holder.child.kill("SIGKILL");
    same((await holder.ended).signal, "SIGKILL");
    const job = await queue.get({ timeoutMs: 10 * LEASE_MS });
    same([job.id, job.attempt], [id, 2]);
    await job.ack();
  },

  async "a script that does not close its queue ends by itself, and what it put is there afterwards"(directory) {
    const script = start("forgetful", directory);
    same([await script.ended, script.lines], [CLEAN, ["put"]]);
    const queue = new SimpleQueue(directory);
    await queue.put("one more");
    await queue.close();
    same(await rejection(queue.put("too late")).then(({ code }) => code), "CLOSED");
    const again = open(directory);
    const jobs = await again.getMany(10);
    same(
      jobs.map(({ data }) => data),
      ["left behind", "one more"],
    );
  },

  async "a fault of the storage has its code"(directory) {
    writeFileSync(path.join(directory, "localqueue.db"), "this is no database, but a text of some length ".repeat(100));
    const queue = open(directory);
    same(await rejection(queue.put("a job")).then(({ code }) => code), "NOT_A_DATABASE");
  },
};

const queues = new Set();
const children = new Set();

const CLEAN = { code: 0, signal: null, errors: "" };

/** Starts this program in another process; `ended` is how it ended, and what it complained of. */
function start(role, directory) {
  const child = spawn(process.execPath, [...RUN, SELF, role, directory], { stdio: "pipe" });
  const lines = [];
  let errors = "";
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  child.stderr.setEncoding("utf8").on("data", (text) => {
    errors += text;
  });
  const ended = once(child, "close").then(([code, signal]) => ({ code, signal, errors }));
  children.add(child);
  return { child, lines, ended };
}

/** A queue that is closed when the check is over. */
function open(directory, options) {
  const queue = new SimpleQueue(directory, options);
  queues.add(queue);
  return queue;
}

function block(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

function same(actual, expected) {
  if (isDeepStrictEqual(actual, expected)) return;
  throw new Error(`Expected ${JSON.stringify(expected)}, but got ${JSON.stringify(actual)}`);
}

async function rejection(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("It was expected to reject");
}

async function until(condition) {
  while (!(await condition())) await sleep(20);
}

async function passes(check) {
  const directory = mkdtempSync(path.join(tmpdir(), "localqueue-smoke-"));
  const timer = new AbortController();
  try {
    const late = sleep(DEADLINE_MS, undefined, { signal: timer.signal }).then(() => {
      throw new Error(`Not within ${DEADLINE_MS} ms`);
    });
    late.catch(() => {}); // it is aborted when the check was in time
    await Promise.race([check(directory), late]);
    return undefined;
  } catch (error) {
    return error;
  } finally {
    timer.abort();
    await Promise.all([...queues].map((queue) => queue.close()));
    for (const child of children) child.kill("SIGKILL");
    for (const all of [queues, children]) all.clear();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function main() {
  let [passed, failed] = [0, 0];
  for (const [name, check] of Object.entries(CHECKS)) {
    const error = await passes(check);
    if (error === undefined) passed++;
    else failed++;
    console.log(error === undefined ? `ok: ${name}` : `FAILED: ${name}\n${error.stack}`);
  }
  const line = `${passed} passed, ${failed} failed\n`;
  if (process.env.CLOSING_LINE_FILE) writeFileSync(process.env.CLOSING_LINE_FILE, line);
  process.stdout.write(line);
  process.exitCode = failed === 0 ? 0 : 1;
}

const [role, directory] = process.argv.slice(2);
await (role === undefined ? main() : ROLES[role](directory));
