import { type FailureReason, type JobState, MAX_RELEASES } from "../../../dist/state.js";
import type { Settlement } from "../../../dist/storage/storage.js";

/** A job, as the file should have it. */
export interface ModelJob {
  readonly id: number;
  readonly queue: string;
  readonly payload: string;
  readonly jobId: string | null;
  readonly key: string | null;
  readonly fingerprint: string | null;
  readonly maxAttempts: number;
  state: JobState;
  attempts: number;
  releases: number;
  availableAt: number;
  updatedAt: number;
  leaseUntil: number | null;
  receipt: string | null;
  lastError: string | null;
  reason: FailureReason | null;
  category: string | null;
}

export type NewModelJob = Pick<ModelJob, "queue" | "payload" | "maxAttempts"> &
  Partial<Pick<ModelJob, "jobId" | "key" | "fingerprint">> & { readonly delayMs?: number };

/** Stands for a conflict of identities: nothing of what was asked for happens. */
export const CONFLICT = "conflict";

/**
 * What a queue promises, in as few words as possible: a list of jobs, no SQL, no batches. The times are given; so are
 * the receipts, which only the real one can invent.
 */
export class Model {
  #jobs = new Map<number, ModelJob>();
  /** A job that is there already uses one up too. */
  #nextId = 1;

  get jobs(): ModelJob[] {
    return [...this.#jobs.values()];
  }

  job(id: number): ModelJob | undefined {
    return this.#jobs.get(id);
  }

  #in(queue: string, state: JobState): ModelJob[] {
    return this.jobs.filter((job) => job.queue === queue && job.state === state);
  }

  put({ delayMs = 0, jobId = null, key = null, fingerprint = null, ...job }: NewModelJob, now: number): number {
    const id = this.#nextId++;
    this.#jobs.set(id, {
      ...job,
      id,
      jobId,
      key,
      fingerprint,
      state: "ready",
      attempts: 0,
      releases: 0,
      availableAt: now + delayMs,
      updatedAt: now,
      leaseUntil: null,
      receipt: null,
      lastError: null,
      reason: null,
      category: null,
    });
    return id;
  }

  /** Puts all jobs whose name is not known in their queue. */
  putMany(jobs: readonly NewModelJob[], now: number): { id: number; inserted: boolean }[] {
    return jobs.map((job) => {
      const known = this.jobs.find(({ queue, jobId }) => queue === job.queue && jobId !== null && jobId === job.jobId);
      if (known === undefined) return { id: this.put(job, now), inserted: true };
      this.#nextId++;
      return { id: known.id, inserted: false };
    });
  }

  /** How many jobs `putMany` would add. */
  additions(jobs: readonly NewModelJob[]): number {
    const named = new Set(jobs.flatMap(({ jobId }) => (jobId ? [jobId] : [])));
    const known = (name: string): boolean =>
      this.jobs.some(({ queue, jobId }) => queue === jobs[0]?.queue && jobId === name);
    return jobs.filter(({ jobId }) => !jobId).length + [...named].filter((name) => !known(name)).length;
  }

  load(queue: string): number {
    return this.#in(queue, "ready").length + this.#in(queue, "processing").length;
  }

  /** Puts an event into each of its queues, or does nothing at all. */
  dispatch(events: readonly NewModelJob[][], now: number): { id: number; inserted: boolean }[][] | typeof CONFLICT {
    return this.#atomically(() =>
      events.map((event) =>
        event.map((job) => {
          const same = this.jobs.filter((other) => other.queue === job.queue && isSameEvent(other, job));
          const [known] = same;
          if (known === undefined) return { id: this.put(job, now), inserted: true };
          const differs = (other: ModelJob): boolean =>
            job.key != null && !(other.key === job.key && other.fingerprint === job.fingerprint);
          if (same.length > 1 || same.some(differs)) throw CONFLICT;
          this.#nextId++;
          return { id: known.id, inserted: false };
        }),
      ),
    );
  }

  #atomically<T>(work: () => T): T | typeof CONFLICT {
    const jobs = new Map(this.jobs.map((job) => [job.id, { ...job }]));
    const nextId = this.#nextId;
    try {
      return work();
    } catch (error) {
      if (error !== CONFLICT) throw error;
      this.#jobs = jobs;
      this.#nextId = nextId;
      return CONFLICT;
    }
  }

  /** Ends the leases of a queue that ran out. */
  expire(queue: string, now: number): number {
    const expired = this.#in(queue, "processing").filter(({ leaseUntil }) => (leaseUntil ?? 0) <= now);
    for (const job of expired) this.#endDelivery(job, now, now, job.reason ?? "retries_exhausted");
    return expired.length;
  }

  /** Another delivery if the budget allows one, else a dead letter. */
  #endDelivery(job: ModelJob, now: number, dueAt: number, reason: FailureReason): void {
    const again = job.attempts < job.maxAttempts;
    const changes = again
      ? ({ state: "ready", availableAt: dueAt, reason: null } as const)
      : ({ state: "failed", reason } as const);
    Object.assign(job, { ...changes, releases: 0, receipt: null, leaseUntil: null, updatedAt: now });
  }

  /** The jobs that a claim gets; their receipts are to be set. `mayExpire`: leases that ran out are ended first. */
  claim(queue: string, limit: number, leaseMs: number, now: number, mayExpire: boolean): ModelJob[] {
    if (mayExpire) this.expire(queue, now);
    for (const job of this.#in(queue, "ready")) {
      if (job.availableAt > job.updatedAt && job.availableAt <= now) job.updatedAt = now;
    }
    const due = this.#in(queue, "ready").filter(({ availableAt, updatedAt }) => availableAt <= updatedAt);
    const claimed = due.sort((a, b) => a.id - b.id).slice(0, limit);
    for (const job of claimed) {
      Object.assign(job, { state: "processing", leaseUntil: now + leaseMs, updatedAt: now });
      job.attempts++;
    }
    return claimed;
  }

  /** When there may be more to claim: a delay is over, or a lease. */
  nextEvent(queue: string, mayExpire: boolean): number {
    const delayed = this.#in(queue, "ready").filter(({ availableAt, updatedAt }) => availableAt > updatedAt);
    const leased = mayExpire ? this.#in(queue, "processing") : [];
    const times = [
      ...delayed.map(({ availableAt }) => availableAt),
      ...leased.map(({ leaseUntil }) => leaseUntil ?? 0),
    ];
    return Math.min(...times);
  }

  #held(id: number, receipt: string, now: number): ModelJob | undefined {
    const job = this.#jobs.get(id);
    const held = job?.state === "processing" && job.receipt === receipt && (job.leaseUntil ?? 0) > now;
    return held ? job : undefined;
  }

  /** The state in which the job is then, or `undefined` if the lease is lost. */
  settle(id: number, receipt: string, move: Settlement, now: number): JobState | undefined {
    const job = this.#held(id, receipt, now);
    if (job === undefined) return undefined;
    switch (move.event) {
      case "ack":
        Object.assign(job, { state: "acked", receipt: null, leaseUntil: null, updatedAt: now });
        break;
      case "nack":
        Object.assign(job, { lastError: move.lastError ?? null, category: null });
        if (job.attempts >= job.maxAttempts) job.availableAt = now;
        this.#endDelivery(job, now, now + move.delayMs, move.exhaustedReason);
        break;
      case "fail": {
        const { lastError = null, reason, category = null } = move;
        const end = { receipt: null, leaseUntil: null, releases: 0, updatedAt: now };
        Object.assign(job, { state: "failed", lastError, reason, category, ...end });
        break;
      }
      case "release": {
        const { releases } = job;
        const again = releases < MAX_RELEASES || job.attempts < job.maxAttempts;
        if (releases < MAX_RELEASES) job.attempts--;
        const end = { receipt: null, leaseUntil: null, availableAt: now, updatedAt: now };
        Object.assign(job, { releases: Math.min(releases + 1, MAX_RELEASES), ...end });
        Object.assign(job, again ? { state: "ready", reason: null } : { state: "failed", reason: "retries_exhausted" });
        break;
      }
    }
    return job.state;
  }

  /** Acknowledges and puts what came of it, or does neither. */
  emit(id: number, receipt: string, events: readonly NewModelJob[][], now: number): JobState | undefined | "conflict" {
    return this.#atomically(() => {
      const state = this.settle(id, receipt, { event: "ack" }, now);
      if (state !== undefined && this.dispatch(events, now) === CONFLICT) throw CONFLICT;
      return state;
    });
  }

  extend(id: number, receipt: string, ms: number, now: number): number | undefined {
    const job = this.#held(id, receipt, now);
    if (job === undefined) return undefined;
    Object.assign(job, { leaseUntil: now + ms, updatedAt: now });
    return now + ms;
  }

  /** Deletes a job that waits, or a dead letter. */
  delete(queue: string, id: number, state: "ready" | "failed"): boolean {
    const job = this.#jobs.get(id);
    return job?.queue === queue && job.state === state && this.#jobs.delete(id);
  }

  /** Makes a dead letter ready again. */
  replay(queue: string, id: number, now: number): boolean {
    const job = this.#jobs.get(id);
    if (job?.queue !== queue || job.state !== "failed") return false;
    const fresh = { state: "ready", attempts: 0, releases: 0, availableAt: now, updatedAt: now } as const;
    Object.assign(job, { ...fresh, lastError: null, reason: null, category: null });
    return true;
  }

  replayAll(queue: string, now: number): number {
    return this.#in(queue, "failed").filter(({ id }) => this.replay(queue, id, now)).length;
  }

  /** Deletes acknowledged jobs, and dead letters if so asked, that were last changed before then. */
  purge(queue: string, before: number, includeFailed: boolean): number {
    const states = includeFailed ? (["acked", "failed"] as const) : (["acked"] as const);
    const old = states.flatMap((state) => this.#in(queue, state)).filter(({ updatedAt }) => updatedAt < before);
    for (const { id } of old) this.#jobs.delete(id);
    return old.length;
  }

  /** The clock was set back: leases and delays keep what is left of them, as of their last change. */
  repairClock(now: number): void {
    for (const job of this.#jobs.values()) {
      if (job.updatedAt <= now) continue;
      const leftMs = (job.state === "processing" ? (job.leaseUntil ?? 0) : job.availableAt) - job.updatedAt;
      if (job.state === "processing") Object.assign(job, { leaseUntil: now + leftMs, updatedAt: now });
      if (job.state === "ready" && leftMs > 0) Object.assign(job, { availableAt: now + leftMs, updatedAt: now });
    }
  }
}

function isSameEvent(job: ModelJob, event: NewModelJob): boolean {
  return (event.jobId != null && job.jobId === event.jobId) || (event.key != null && job.key === event.key);
}
