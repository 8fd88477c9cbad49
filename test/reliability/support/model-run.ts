import { rmSync } from "node:fs";
import { expect } from "vitest";
import type { JobState } from "../../../dist/state.js";
import { STATES } from "../../../dist/state.js";
import { type Database, loadDriver, type Row } from "../../../dist/storage/sqlite/driver.js";
import type { NewEvent } from "../../../dist/storage/sqlite/protocol.js";
import type { Delivery, Lease, QueueStats } from "../../../dist/storage/storage.js";
import { type Call, TestClock, TestEngine } from "../../support/engine-harness.ts";
import { memoryDirectory } from "./memory-directory.ts";
import { Model } from "./model.ts";

/** A machine that was not heard of for this long has slept: leases get some more time. */
const SLEEP_MS = 2000;
const POLL_MS = 1000;

/** A claim that waits for work. */
interface Waiter {
  readonly call: Call;
  readonly queue: string;
  readonly limit: number;
  readonly leaseMs: number;
  readonly endsAt: number;
}

/** An engine on a real file beside the model of it: both are given the same, and must always agree. */
export class ModelRun {
  readonly model: Model = new Model();
  readonly clock: TestClock = new TestClock();
  engine: TestEngine;
  /** Every lease that was ever given, in order. */
  readonly leases: (Lease & { readonly queue: string })[] = [];
  readonly #directory: string = memoryDirectory();
  readonly #reader: Database;
  #waiters: Waiter[] = [];
  /** The latest that the engine has seen on the wall clock. */
  #latest: number;
  /** What it has seen last, on both clocks. */
  #seen: { readonly mono: number; readonly wall: number } | undefined;
  #expireAfter = Number.NEGATIVE_INFINITY;
  /** When the engine wanted to be called again. */
  #planned: { readonly mono: number; readonly wall: number } | undefined;

  constructor() {
    this.engine = this.#open();
    this.#latest = this.clock.wall;
    this.#reader = loadDriver().open(this.engine.connection.file);
  }

  get now(): number {
    return this.clock.wall;
  }

  get #mayExpire(): boolean {
    return this.clock.monotonic >= this.#expireAfter;
  }

  #open(): TestEngine {
    return new TestEngine({ directory: this.#directory, clock: this.clock, idle: true, closedByCaller: true });
  }

  /** As if the process was killed while it did nothing, and another took its place. */
  reopen(): void {
    this.engine.close();
    this.engine = this.#open();
    this.#waiters = [];
    this.#expireAfter = Number.NEGATIVE_INFINITY;
    this.#planned = undefined;
    this.#seen = undefined;
    // All that it can know of the clock is what was written.
    const held = this.model.jobs.filter(({ state }) => state === "processing");
    this.#latest = Math.max(this.#latestWritten(), ...held.map(({ updatedAt }) => updatedAt));
    this.settle();
  }

  close(): void {
    this.engine.close();
    this.#reader.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** Lets the engine work until it has nothing to do at this moment. */
  settle(): void {
    this.#noticeTime();
    for (let steps = 0; ; steps++) {
      this.engine.tick();
      const wait = this.engine.step();
      this.#planned = { mono: this.clock.monotonic + wait, wall: this.clock.wall + wait };
      if (wait > 0) return;
      if (steps === 100) throw new Error("the engine spins");
    }
  }

  /** What the engine does about a clock that was set, and a machine that slept. */
  #noticeTime(): void {
    if (this.#planned !== undefined) {
      const late = Math.max(this.clock.monotonic - this.#planned.mono, this.now - this.#planned.wall);
      if (late >= SLEEP_MS) this.#expireAfter = this.clock.monotonic + SLEEP_MS;
    }
    const { mono, wall } = this.#seen ?? { mono: this.clock.monotonic, wall: this.now };
    const wentBack = this.now - wall < this.clock.monotonic - mono - 1000;
    this.#seen = { mono: this.clock.monotonic, wall: this.now };
    if (wentBack || this.now < this.#latest - 1000) {
      this.model.repairClock(this.now);
      this.#latest = this.now;
    } else this.#latest = Math.max(this.#latest, this.now);
  }

  /** Time passes for both. */
  elapse(ms: number): void {
    const end = this.clock.monotonic + ms;
    for (;;) {
      this.settle();
      this.serve();
      const waitMs = (this.#planned?.mono ?? 0) - this.clock.monotonic;
      expect(waitMs, "an engine that sleeps too long").toBeLessThanOrEqual(this.#longestWait());
      const left = end - this.clock.monotonic;
      if (left <= 0) return;
      this.clock.advance(Math.min(Math.max(1, Math.ceil(waitMs)), left));
    }
  }

  /** When there will be something to do for those who wait. */
  #longestWait(): number {
    const waits = this.#waiters.flatMap(({ queue, endsAt }) => [
      Math.min(POLL_MS, endsAt - this.clock.monotonic),
      this.model.nextEvent(queue, this.#mayExpire) - this.now,
    ]);
    return Math.max(1, Math.min(...waits));
  }

  addWaiter(waiter: Omit<Waiter, "endsAt">, waitMs: number): void {
    this.#waiters.push({ ...waiter, endsAt: this.clock.monotonic + waitMs });
  }

  /** What those who wait are to be given now, in turn. */
  serve(): void {
    this.#waiters = this.#waiters.filter((waiter) => {
      const { queue, limit, leaseMs, call, endsAt } = waiter;
      const jobs = this.model.claim(queue, limit, leaseMs, this.now, this.#mayExpire);
      const waits = jobs.length === 0 && endsAt > this.clock.monotonic;
      expect(call.answered, `whether claim ${call.id} is answered`).toBe(!waits);
      if (waits) return true;
      const deliveries = call.claimed ?? [];
      expect(
        deliveries.map(({ id, attempt, leaseUntil, payload }) => [id, attempt, leaseUntil, textOf(payload)]),
      ).toEqual(jobs.map(({ id, attempts, leaseUntil, payload }) => [id, attempts, leaseUntil, payload]));
      for (const [i, job] of jobs.entries()) {
        const { id, receipt } = deliveries[i] as Delivery;
        expect(this.leases.map((lease) => lease.receipt)).not.toContain(receipt);
        job.receipt = receipt;
        this.leases.push({ id, receipt, queue });
      }
      return false;
    });
  }

  /** The file must have what the model has, to the letter. */
  compare(): void {
    const rows = this.#reader.prepare("SELECT * FROM messages ORDER BY id").all();
    expect(rows.map(toModel)).toEqual(this.model.jobs.sort((a, b) => a.id - b.id));
    const delayed = this.model.jobs.filter((job) => job.state === "ready" && job.availableAt > job.updatedAt);
    expect(Math.max(0, ...delayed.map(({ updatedAt }) => updatedAt))).toBeLessThanOrEqual(this.#latestWritten());
    const counted = this.#reader.prepare("SELECT * FROM localqueue_counts WHERE queue <> ''").all();
    for (const { queue, ready, processing, acked, failed } of counted) {
      expect({ ready, processing, acked, failed }).toEqual(this.countsOf(queue as string));
    }
  }

  /** What the file keeps of the clock. */
  #latestWritten(): number {
    const [row] = this.#reader.prepare("SELECT max(clock) AS clock FROM localqueue_counts WHERE queue <> ''").all();
    return Number(row?.["clock"] ?? 0);
  }

  countsOf(queue: string): QueueStats {
    const count = (state: JobState): number =>
      this.model.jobs.filter((job) => job.queue === queue && job.state === state).length;
    return { ready: count("ready"), processing: count("processing"), acked: count("acked"), failed: count("failed") };
  }
}

const textOf = (payload: Uint8Array | string): string => Buffer.from(payload).toString();

function toModel(row: Row): object {
  return {
    id: row["id"],
    queue: row["queue"],
    payload: textOf(row["payload"] as Uint8Array),
    jobId: row["job_id"],
    key: row["dedup_key"],
    fingerprint: row["dedup_fingerprint"],
    maxAttempts: row["max_attempts"],
    state: STATES[row["status"] as number],
    attempts: row["attempts"],
    releases: row["releases"],
    availableAt: row["available_at"],
    updatedAt: row["updated_at"],
    leaseUntil: row["lease_until"],
    receipt: row["receipt"],
    lastError: row["last_error"],
    reason: row["failure_reason"],
    category: row["failure_category"],
  };
}

/** What the engine is given for an event of the model's. */
export function eventOf(
  jobs: readonly {
    queue: string;
    payload: string;
    maxAttempts: number;
    jobId?: string | null;
    key?: string | null;
    fingerprint?: string | null;
  }[],
): NewEvent {
  const [first] = jobs;
  if (first === undefined) throw new Error("an event without a queue");
  const { payload, jobId, key, fingerprint, maxAttempts } = first;
  const identity = key == null ? undefined : { key, fingerprint: fingerprint ?? "" };
  return { payload, jobId: jobId ?? "", queues: jobs.map(({ queue }) => queue), identity, maxAttempts };
}
