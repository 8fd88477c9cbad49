import { randomUUID } from "node:crypto";
import path from "node:path";
import { performance } from "node:perf_hooks";
import { loadDriver } from "../../../dist/storage/sqlite/driver.js";
import { SQL } from "../../../dist/storage/sqlite/statements.js";
import { withDirectory } from "./directory.mjs";
import { withQueue } from "./queue.mjs";

const QUEUE = "default";
/** As many pages as the engine lets the WAL grow to. */
const CHECKPOINT_PAGES = 4000;

/**
 * What a queue in SQLite could reach at best: a loop on one thread over a file that localqueue made, with its
 * indexes, its statements and its counts, but no messages, no promises, no waiting callers, no checks of the file.
 */
export class Limit {
  #db;
  #statements;
  /** By queue. */
  #held = new Map();

  constructor(directory, { fsync = false, checkpoints = true } = {}) {
    this.#db = loadDriver().open(path.join(directory, "localqueue.db"));
    this.#db.exec(`PRAGMA synchronous = ${fsync ? "FULL" : "NORMAL"}`);
    this.#db.exec(`PRAGMA wal_autocheckpoint = ${checkpoints ? CHECKPOINT_PAGES : 0}`);
    const prepare = (name) => this.#db.prepare(SQL[name]);
    const names = ["put", "putEvent", "claim", "ack", "count"];
    this.#statements = Object.fromEntries(names.map((name) => [name, prepare(name)]));
  }

  /** Puts so many jobs in one transaction. */
  put(payload, jobs = 1) {
    this.#begin();
    const now = Date.now();
    for (let i = 0; i < jobs; i++) this.#put(payload, now);
    this.#count({ ready: jobs }, now);
    this.#commit();
  }

  /** Puts events with these ids into all of the queues, in one transaction. */
  fanOut(payload, ids, queues) {
    this.#begin();
    const now = Date.now();
    const event = { payload, maxAttempts: 4, context: null, key: null, fingerprint: null, now };
    for (const jobId of ids) {
      for (const queue of queues) this.#statements.putEvent.run({ ...event, jobId, queue });
    }
    for (const queue of queues) this.#count({ ready: ids.length }, now, queue);
    this.#commit();
  }

  /** In one transaction, for each queue: acknowledges what the turn before claimed, and claims so many jobs. */
  turn(jobs, read, queues = [QUEUE]) {
    this.#begin();
    const now = Date.now();
    for (const queue of queues) {
      const held = this.#held.get(queue) ?? [];
      for (const lease of held) this.#ack(lease, now, queue);
      const claimed = [];
      for (let i = 0; i < jobs; i++) {
        const { payload, ...lease } = this.#claim(now, queue);
        read(payload);
        claimed.push(lease);
      }
      this.#count({ ready: -jobs, processing: jobs - held.length, acked: held.length }, now, queue);
      this.#held.set(queue, claimed);
    }
    this.#commit();
  }

  /** Claims a job and hands it out, then acknowledges it in a transaction of its own; returns whether there was one. */
  workOff(read) {
    this.#begin();
    const claimed = this.#claim(Date.now());
    if (claimed !== undefined) this.#count({ ready: -1, processing: 1 }, Date.now());
    this.#commit();
    if (claimed === undefined) return false;
    read(claimed.payload);
    this.#begin();
    this.#ack(claimed, Date.now());
    this.#count({ processing: -1, acked: 1 }, Date.now());
    this.#commit();
    return true;
  }

  /** Puts a job, claims one and acknowledges it; returns the milliseconds that the claim's statement took. */
  timeOfClaim(payload) {
    this.#begin();
    const now = Date.now();
    this.#put(payload, now);
    const start = performance.now();
    const lease = this.#claim(now);
    const took = performance.now() - start;
    this.#ack(lease, now);
    this.#count({ acked: 1 }, now);
    this.#commit();
    return took;
  }

  /** Moves the WAL into the database; for a limit that was told not to do so by itself. */
  checkpoint() {
    this.#db.prepare("PRAGMA wal_checkpoint(PASSIVE)").all();
  }

  close() {
    this.#db.close();
  }

  #begin() {
    this.#db.exec("BEGIN IMMEDIATE");
  }

  #commit() {
    this.#db.exec("COMMIT");
  }

  #put(payload, now) {
    this.#statements.put.run({ queue: QUEUE, payload, maxAttempts: 4, delayMs: 0, jobId: null, context: null, now });
  }

  #claim(now, queue = QUEUE) {
    const receipt = randomUUID();
    const [row] = this.#statements.claim.all({ queue, leaseMs: 60_000, budget: null, now, receipt, text: 1 });
    return row && { id: row.id, receipt, payload: row.payload };
  }

  #ack({ id, receipt }, now, queue = QUEUE) {
    const { changes } = this.#statements.ack.run({ id, queue, receipt, now });
    if (changes !== 1) throw new Error(`The limit could not acknowledge job ${id}.`);
  }

  #count(moves, now, queue = QUEUE) {
    this.#statements.count.run({ queue, ready: 0, processing: 0, acked: 0, failed: 0, ...moves, now });
  }
}

/** Lends a limit on a new file to `work`. */
export function withLimit(options, work) {
  return withDirectory(async (directory) => {
    await withQueue(directory, {}, (queue) => queue.stats());
    const limit = new Limit(directory, options);
    try {
      return await work(limit, directory);
    } finally {
      limit.close();
    }
  });
}
