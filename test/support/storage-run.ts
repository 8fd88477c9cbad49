import { expect } from "vitest";
import type { Delivery, Enqueued, Envelope, Lease, Storage } from "../../dist/storage/storage.js";
import { Model, type ModelJob, type NewModelJob } from "../reliability/support/model.ts";
import type { Bench, StoredJob } from "./backend.ts";

/** Far less than what any lease, delay or step of time differs by, and far more than a sequence takes. */
const TOLERANCE_MS = 20_000;

/** A lease that was given some time: it may be over by now, or another's. */
export interface GivenLease {
  /** In the database, and in the model. */
  readonly lease: Lease;
  readonly job: number;
  readonly queue: string;
}

/** A storage beside its model: both are given the same, one after the other, and must always agree. */
export class StorageRun {
  readonly model: Model = new Model();
  readonly leases: GivenLease[] = [];
  readonly #bench: Bench;
  readonly #storages = new Map<string, Storage>();
  /** The id in the database of each job of the model: one that is refused may use up an id there. */
  readonly #ids = new Map<number, number>();
  /** How much time has passed that did not pass. */
  #aged = 0;

  constructor(bench: Bench) {
    this.#bench = bench;
  }

  /** As the model sees it. */
  get now(): number {
    return Date.now() + this.#aged;
  }

  of(queue: string): Storage {
    const known = this.#storages.get(queue);
    if (known !== undefined) return known;
    const storage = this.#bench.storage(queue);
    this.#storages.set(queue, storage);
    return storage;
  }

  async elapse(ms: number): Promise<void> {
    await this.#bench.age(ms);
    this.#aged += ms;
  }

  idOf(job: number): number {
    return this.#ids.get(job) ?? job + 1_000_000;
  }

  /** What was put for real must be what the model put. */
  added(real: readonly Enqueued[], modelled: readonly Enqueued[]): void {
    for (const [i, { id, inserted }] of modelled.entries()) {
      if (inserted) this.#ids.set(id, real[i]?.id ?? Number.NaN);
    }
    expect(real).toEqual(modelled.map(({ id, inserted }) => ({ id: this.idOf(id), inserted })));
  }

  /** Of what was put without its ids being told. */
  async learnIds(): Promise<void> {
    const ids = new Map((await this.#bench.jobs()).map(({ id, queue, payload }) => [`${queue} ${payload}`, id]));
    for (const { id, queue, payload } of this.model.jobs) {
      if (!this.#ids.has(id)) this.#ids.set(id, ids.get(`${queue} ${payload}`) ?? Number.NaN);
    }
  }

  claimed(queue: string, real: readonly Delivery[], modelled: readonly ModelJob[]): void {
    const facts = real.map(({ id, attempt, payload }) => [id, attempt, Buffer.from(payload).toString()]);
    expect(facts).toEqual(modelled.map(({ id, attempts, payload }) => [this.idOf(id), attempts, payload]));
    for (const [i, job] of modelled.entries()) {
      const { id, receipt } = real[i] as Delivery;
      expect(this.leases.map(({ lease }) => lease.receipt)).not.toContain(receipt);
      job.receipt = receipt;
      this.leases.push({ lease: { id, receipt }, job: job.id, queue });
    }
  }

  /** The database must have what the model has, and count it rightly. */
  async compare(): Promise<void> {
    const rows = await this.#bench.jobs();
    const jobs = this.model.jobs.sort((a, b) => a.id - b.id);
    expect(rows.map(factsOfRow)).toEqual(jobs.map((job) => ({ ...factsOfJob(job), id: this.idOf(job.id) })));
    for (const [i, job] of jobs.entries()) {
      const { availableAt, updatedAt, leaseUntil } = rows[i] as StoredJob;
      const times = { availableAt, updatedAt, leaseUntil: leaseUntil ?? 0 };
      for (const name of ["availableAt", "updatedAt", "leaseUntil"] as const) {
        const passed = name === "leaseUntil" && leaseUntil === null ? 0 : this.#aged;
        const apart = Math.abs(times[name] + passed - (job[name] ?? 0));
        expect(apart, `${name} of job ${job.id}`).toBeLessThan(TOLERANCE_MS);
      }
    }
    for (const [queue, storage] of this.#storages) {
      const counts = { ready: 0, processing: 0, acked: 0, failed: 0 };
      for (const job of jobs) if (job.queue === queue) counts[job.state]++;
      expect(await storage.stats()).toEqual(counts);
    }
  }
}

function factsOfRow(row: StoredJob): object {
  const { availableAt, updatedAt, leaseUntil, createdAt, context, failureReason, failureCategory, ...facts } = row;
  const { identityKey, ...rest } = facts;
  const waits = row.state === "ready" && availableAt > updatedAt;
  return { ...rest, key: identityKey, reason: failureReason, category: failureCategory, waits };
}

function factsOfJob(job: ModelJob): object {
  const { availableAt, updatedAt, leaseUntil, ...facts } = job;
  return { ...facts, waits: job.state === "ready" && availableAt > updatedAt };
}

/** An event of the model's, for a storage. */
export function envelopeOf(jobs: readonly NewModelJob[]): Envelope {
  const [first] = jobs;
  if (first === undefined) throw new Error("an event without a queue");
  const { payload, jobId, key, fingerprint, maxAttempts } = first;
  const identity = key == null ? undefined : { key, fingerprint: fingerprint ?? "" };
  return { payload, jobId: jobId ?? "", queues: jobs.map(({ queue }) => queue), identity, maxAttempts };
}
