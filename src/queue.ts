import { unlessAborted } from "./abort.ts";
import {
  type BackupOptions,
  type IntegrityOptions,
  readBackupOptions,
  readDirectory,
  readIntegrityOptions,
} from "./care-options.ts";
import * as channels from "./channels.ts";
import { type QueueDiagnostics, queueDiagnostics } from "./diagnostics.ts";
import { EmptyError, LeaseExpiredError, QueueClosedError } from "./errors.ts";
import { Intake } from "./intake.ts";
import {
  ClaimedJob,
  draftsOf,
  type EnqueueItem,
  type FailOptions,
  isEnqueueItem,
  type Job,
  type NackOptions,
  readLease,
} from "./job.ts";
import { type FailedMessage, failedMessage, type JobInfo, jobInfo } from "./job-info.ts";
import {
  type FindOptions,
  type ListFailedOptions,
  type ListOptions,
  readFind,
  readList,
  readListFailed,
} from "./look-options.ts";
import { wrongType } from "./options.ts";
import {
  type FailedFilter,
  jobNumber,
  type PurgeOptions,
  readFailedSelection,
  readPurgeOptions,
} from "./purge-options.ts";
import { type AttachedConsumer, shareInternals } from "./queue-internals.ts";
import {
  batchLimit,
  extension,
  type JobsOptions,
  type PutOptions,
  readFailOptions,
  readJobsOptions,
  readNackOptions,
  readPutOptions,
  readQueueOptions,
  readWaitOptions,
  type SimpleQueueOptions,
  type WaitOptions,
} from "./queue-options.ts";
import { encode, encodeAll, jsonSerializer, type Serializer } from "./serializer.ts";
import type { BackupReport, IntegrityReport } from "./storage/care.ts";
import { type Location, openStorage } from "./storage/location.ts";
import type { Enqueued, Lease, QueueStats, Settlement, Storage } from "./storage/storage.ts";
import { describeGiven } from "./thrown.ts";
import { countdown } from "./timers.ts";

/**
 * A durable queue of jobs in a directory, or in a PostgreSQL database, safe to use from any number of processes at the
 * same time. The first operation opens it, and rejects with a `StorageError` if it cannot.
 */
export class SimpleQueue<T = unknown> {
  readonly #name: string;
  readonly #leaseMs: number;
  readonly #maxRetries: number;
  readonly #maxPendingJobs: number | undefined;
  readonly #serializer: Serializer<T>;
  readonly #storage: Storage;
  readonly #intake: Intake<T>;
  readonly #consumers = new Set<AttachedConsumer>();
  /** Aborted by `close()`: ends what waits for a job. */
  readonly #ending = new AbortController();
  #closed: Promise<void> | undefined;

  /** Of a directory (a path or a `file:` URL), created at its first use, or of a database (a URL, or `postgres()`). */
  constructor(location: string | URL | Location, options?: SimpleQueueOptions<T>) {
    const { name, leaseMs, maxRetries, fsync, serializer, maxPendingJobs, retention } = readQueueOptions(options);
    this.#name = name;
    this.#leaseMs = leaseMs;
    this.#maxRetries = maxRetries;
    this.#maxPendingJobs = maxPendingJobs;
    this.#serializer = serializer as Serializer<T>;
    const text = serializer === jsonSerializer;
    this.#storage = openStorage(location, { queue: name, fsync, text, maxPendingJobs, retention });
    this.#intake = new Intake({
      name,
      leaseMs,
      serializer: this.#serializer,
      storage: this.#storage,
      owner: this,
      ending: this.#ending.signal,
    });
    shareInternals(this, {
      name,
      leaseMs,
      storage: this.#storage,
      open: (delivery) => this.#intake.open(delivery),
      unreadable: (error) => this.#intake.unreadable(error),
      attach: (consumer) => this.#attach(consumer),
    });
  }

  /**
   * Adds a job and resolves once it is committed. With a `jobId` that the queue knows already, nothing is changed and
   * the id is that of the existing job. While the queue holds `maxPendingJobs`, waits for room. Rejects with
   * `PayloadError`, `FullError` (no room in time), `StorageError`, `QueueClosedError`.
   */
  async put(data: T, options?: PutOptions): Promise<Enqueued> {
    const { jobId, delayMs, maxRetries, timeoutMs, signal } = readPutOptions(options);
    if (isEnqueueItem(data)) throw wrongType("data", "a payload (an EnqueueItem is for `putMany`)", data);
    const left = countdown(timeoutMs);
    const encoding = encode(this.#serializer, data);
    const payload = encoding instanceof Promise ? await unlessAborted(encoding, signal) : encoding;
    const entry = { payload, jobId, delayMs, maxAttempts: (maxRetries ?? this.#maxRetries) + 1 };
    const [enqueued] = await channels.put(this.#storage, this.#name, [entry], { timeoutMs: left(), signal });
    return enqueued as Enqueued;
  }

  /**
   * Adds all items in one transaction, or none. The results are in the order of the items. Rejects as `put` does, and
   * with `FullError` at once if there are more new ones than `maxPendingJobs`.
   */
  async putMany(items: Iterable<T | EnqueueItem<T>>, options?: WaitOptions): Promise<Enqueued[]> {
    const { timeoutMs, signal } = readWaitOptions(options);
    const left = countdown(timeoutMs);
    const drafts = draftsOf(items);
    if (drafts.length === 0) {
      this.#refuseIfClosed();
      return [];
    }
    const encoding = encodeAll(
      this.#serializer,
      drafts.map(({ data }) => data),
    );
    const payloads = encoding instanceof Promise ? await unlessAborted(encoding, signal) : encoding;
    const entries = drafts.map(({ jobId, delayMs, maxRetries }, index) => ({
      payload: payloads[index] as string | Uint8Array,
      jobId,
      delayMs,
      maxAttempts: (maxRetries ?? this.#maxRetries) + 1,
    }));
    return channels.put(this.#storage, this.#name, entries, { timeoutMs: left(), signal });
  }

  /**
   * Waits for a job and claims it. It must be settled, or its lease extended, before the lease ends: nothing does
   * that by itself. Rejects with `EmptyError` on time-out, `QueueClosedError`, `StorageError`.
   */
  async get(options?: WaitOptions): Promise<Job<T>> {
    const [job] = await this.#intake.take(1, readWaitOptions(options));
    if (job === undefined) throw new EmptyError(`No job of queue "${this.#name}" was ready in time`);
    return job;
  }

  /** Claims a job if one is ready, else rejects with `EmptyError`. */
  getNowait(): Promise<Job<T>> {
    return this.get({ timeoutMs: 0 });
  }

  /**
   * Waits for a job and claims it with those that are ready as well, up to `limit` (1 to 10,000) in one transaction.
   * On time-out resolves to `[]`.
   */
  async getMany(limit: number, options?: WaitOptions): Promise<Job<T>[]> {
    return this.#intake.take(batchLimit(limit, "limit"), readWaitOptions(options));
  }

  /**
   * Claims jobs one at a time, for ever: until the signal aborts or the queue closes. Leaving the loop leaves the job
   * leased.
   */
  jobs(options?: JobsOptions): AsyncIterable<Job<T>> {
    const { signal } = readJobsOptions(options);
    this.#refuseIfClosed();
    return this.#intake.iterate(signal);
  }

  /** The job is done. Rejects with `LeaseExpiredError`, and changes nothing, when the lease is over. */
  async ack(job: Lease): Promise<void> {
    await this.#settle(job, { event: "ack" });
  }

  /**
   * The job shall be delivered again; if this was its last delivery it becomes a dead letter (`retries_exhausted`).
   * Rejects with `LeaseExpiredError`, and changes nothing, when the lease is over.
   */
  async nack(job: Lease, options?: NackOptions): Promise<void> {
    const { delayMs, lastError } = readNackOptions(options);
    const settlement: Settlement = {
      event: "nack",
      delayMs,
      lastError: describeGiven(lastError),
      exhaustedReason: "retries_exhausted",
    };
    await this.#settle(job, settlement, lastError);
  }

  /**
   * The job becomes a dead letter (`explicit_permanent_failure`) at once. Rejects with `LeaseExpiredError`, and changes
   * nothing, when the lease is over.
   */
  async fail(job: Lease, options?: FailOptions): Promise<void> {
    const { lastError, category } = readFailOptions(options);
    const settlement: Settlement = {
      event: "fail",
      lastError: describeGiven(lastError),
      reason: "explicit_permanent_failure",
      category,
    };
    await this.#settle(job, settlement, lastError);
  }

  /**
   * Moves the end of the lease to `ms` (1 to 86,400,000) from now. Rejects with `LeaseExpiredError`, and changes
   * nothing, when the lease is over.
   */
  async extendLease(job: Lease, ms: number): Promise<void> {
    const lease = readLease(job);
    const extending = this.#storage.extend(lease, extension(ms, "ms"));
    ClaimedJob.leaseMoved(job, await this.#orTellLost(extending, job, lease));
  }

  /**
   * Gives the job back unprocessed: it is ready at once, and the delivery does not count. After 10 times in a row it
   * does. Rejects with `LeaseExpiredError`, and changes nothing, when the lease is over.
   */
  async release(job: Lease): Promise<void> {
    await this.#settle(job, { event: "release" });
  }

  /** Ends the leases that have run out and resolves to their number. Claims do this by themselves. */
  async reclaimExpiredLeases(): Promise<number> {
    return this.#storage.reclaim();
  }

  /**
   * Looks through the whole file, with all its queues, and changes nothing. What is wrong with it is in the report;
   * rejects with `StorageError` if it is too damaged to be opened.
   */
  async checkIntegrity(options?: IntegrityOptions): Promise<IntegrityReport> {
    return this.#storage.checkIntegrity(readIntegrityOptions(options));
  }

  /**
   * Copies the file, with all its queues, as it is at one moment, while anybody may go on writing, and verifies the
   * copy. `directory` must not exist yet, and its parent must. If this rejects (`StorageError`, `QueueClosedError`),
   * nothing is left behind.
   */
  async backup(directory: string | URL, options?: BackupOptions): Promise<BackupReport> {
    const destination = readDirectory(directory);
    return this.#storage.backup({ destination, ...readBackupOptions(options) });
  }

  /**
   * Writes the file anew without the space that is not used any more. Nobody can write meanwhile: while a job of any
   * queue in the file is being processed this rejects with `StorageError` BUSY, and changes nothing.
   */
  async vacuum(): Promise<void> {
    return this.#storage.vacuum();
  }

  /** How many jobs are in each state; `ready` includes those that wait for their time. */
  async stats(): Promise<QueueStats> {
    return this.#storage.stats();
  }

  /** The job with this id, or with this `jobId`, in whatever state; `undefined` if there is none. */
  async find(by: FindOptions): Promise<JobInfo | undefined> {
    const record = await this.#storage.find(readFind(by));
    return record && jobInfo(this.#name, record);
  }

  /** Jobs of one state in the order of their ids, up to `limit` (default 100), without claiming them. */
  async list(options: ListOptions): Promise<JobInfo[]> {
    const records = await this.#storage.list(readList(options));
    return records.map((record) => jobInfo(this.#name, record));
  }

  /**
   * Dead letters in the order of their ids, up to `limit` (default 100). One whose payload cannot be decoded is listed
   * with its bytes and the reason.
   */
  async listFailed(options?: ListFailedOptions): Promise<FailedMessage<T>[]> {
    const records = await this.#storage.listFailed(readListFailed(options));
    return Promise.all(records.map((record) => failedMessage(this.#serializer, record)));
  }

  /**
   * How the queue, its file and this program's side of it are doing, in one snapshot. Changes nothing, and costs the
   * same at any number of jobs.
   */
  async diagnostics(): Promise<QueueDiagnostics> {
    return queueDiagnostics(await this.#storage.diagnostics(), {
      name: this.#name,
      serializer: this.#serializer,
      leaseMs: this.#leaseMs,
      maxRetries: this.#maxRetries,
      maxPendingJobs: this.#maxPendingJobs,
    });
  }

  /**
   * Deletes a job that waits to be delivered, now or later. Resolves to whether it did: not when the job is being
   * processed, finished or unknown, or belongs to an execution of the Python package.
   */
  async remove(id: number): Promise<boolean> {
    return this.#storage.remove(jobNumber(id, "id"));
  }

  /**
   * Delivers dead letters again, with a fresh budget: one by its id, or all of a filter (`{}` = all). Resolves to their
   * number. Rejects with `NotFoundError` when there is no dead letter with this id.
   */
  async retryFailed(which: number | { readonly id: number } | FailedFilter): Promise<number> {
    return this.#storage.retryFailed(readFailedSelection(which));
  }

  /**
   * Deletes dead letters for good: one by its id, or all of a filter (`{}` = all). Resolves to their number. Rejects
   * with `NotFoundError` when there is no dead letter with this id. Those that belong to executions of the Python
   * package are kept.
   */
  async purgeFailed(which: number | { readonly id: number } | FailedFilter): Promise<number> {
    return this.#storage.purgeFailed(readFailedSelection(which));
  }

  /**
   * Deletes the acknowledged jobs that were last changed more than `olderThanMs` ago, and with `includeFailed` such
   * dead letters, too; resolves to their number. It goes in slices of a few milliseconds, so others can work
   * meanwhile; after an error, or `close()`, what was deleted so far is deleted. Jobs that belong to executions of the
   * Python package are kept.
   */
  async purge(options: PurgeOptions): Promise<number> {
    return this.#storage.purge(readPurgeOptions(options));
  }

  /**
   * Ends what waits for a job or for room at once (`QueueClosedError`), stops the workers on this queue gracefully (until then
   * their handlers may still put and settle), and commits what was accepted, or rejects it after 500 ms if the
   * database is locked. Jobs claimed by hand stay leased. Idempotent.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** The same as `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#ending.abort(this.#closedError());
    this.#storage.stopWaiting();
    if (this.#consumers.size > 0) await Promise.all(Array.from(this.#consumers, (consumer) => consumer.stop()));
    await this.#storage.close();
  }

  async #settle(job: Lease, settlement: Settlement, error?: unknown): Promise<void> {
    const lease = readLease(job);
    const settling = this.#storage.settle(lease, settlement);
    for (const consumer of this.#consumers) consumer.settledByHand(lease.receipt, settling, settlement, error);
    const state = await this.#orTellLost(settling, job, lease);
    channels.settled(this.#name, known(job, lease), settlement, state);
  }

  async #orTellLost<R>(work: Promise<R>, job: Lease, lease: Lease): Promise<R> {
    try {
      return await work;
    } catch (error) {
      if (error instanceof LeaseExpiredError) channels.leaseLost(this.#name, known(job, lease));
      throw error;
    }
  }

  #attach(consumer: AttachedConsumer): () => void {
    this.#refuseIfClosed();
    this.#consumers.add(consumer);
    return () => this.#consumers.delete(consumer);
  }

  #refuseIfClosed(): void {
    if (this.#closed !== undefined) throw this.#closedError();
  }

  #closedError(): QueueClosedError {
    return new QueueClosedError(`Queue "${this.#name}" is closed`);
  }
}

/** What is known of a job that may be no more than an id and a receipt. */
function known(job: Lease, lease: Lease): Lease | ClaimedJob<unknown> {
  return job instanceof ClaimedJob ? job : lease;
}
