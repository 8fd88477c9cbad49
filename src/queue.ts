import { unlessAborted, withEither } from "./abort.ts";
import {
  type BackupOptions,
  type IntegrityOptions,
  readBackupOptions,
  readDirectory,
  readIntegrityOptions,
} from "./care-options.ts";
import { type QueueDiagnostics, queueDiagnostics } from "./diagnostics.ts";
import { callSafely } from "./emitter.ts";
import { EmptyError, QueueClosedError } from "./errors.ts";
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
import { decode, describeDecodeError, encode, encodeAll, jsonSerializer, type Serializer } from "./serializer.ts";
import type { JobState } from "./state.ts";
import type { BackupReport, IntegrityReport } from "./storage/care.ts";
import { openStorage } from "./storage/location.ts";
import type { Delivery, Enqueued, Lease, QueueStats, Settlement, Storage, Wait } from "./storage/storage.ts";
import { describeThrown } from "./thrown.ts";
import { countdown } from "./timers.ts";

/** What a worker needs of its queue, and nobody else should. */
export interface QueueInternals<T> {
  readonly name: string;
  readonly leaseMs: number;
  readonly storage: Storage;
  /** Decodes; throws, or rejects, if that is not possible. */
  open(delivery: Delivery): Job<T> | Promise<Job<T>>;
  /** What becomes of a delivery that cannot be decoded. */
  unreadable(error: unknown): Settlement;
  /** Has `consumer` stopped before the queue closes, until the function that is returned is called. */
  attach(consumer: AttachedConsumer): () => void;
}

export interface AttachedConsumer {
  stop(): Promise<void>;
  /** Somebody settles the delivery of this receipt by hand; `error` is what was given as the last error. */
  settledByHand(receipt: string, settling: Promise<JobState>, settlement: Settlement, error: unknown): void;
}

const internals = new WeakMap<object, QueueInternals<unknown>>();

/** `undefined` for anything but a queue of this copy of the package. */
export function internalsOf<T>(queue: SimpleQueue<T>): QueueInternals<T> | undefined {
  return internals.get(queue) as QueueInternals<T> | undefined;
}

/**
 * A durable queue of jobs in a directory, safe to use from any number of processes at the same time. The first
 * operation opens the database, and rejects with a `StorageError` if it cannot.
 */
export class SimpleQueue<T = unknown> {
  readonly #name: string;
  readonly #leaseMs: number;
  readonly #maxRetries: number;
  readonly #serializer: Serializer<T>;
  readonly #storage: Storage;
  readonly #consumers = new Set<AttachedConsumer>();
  /** Aborted by `close()`: ends what waits for a job. */
  readonly #ending = new AbortController();
  #closed: Promise<void> | undefined;

  /** `location` is a directory, as a path or a `file:` URL; it is created with its parents when it is first used. */
  constructor(location: string | URL, options?: SimpleQueueOptions<T>) {
    const { name, leaseMs, maxRetries, fsync, serializer } = readQueueOptions(options);
    this.#name = name;
    this.#leaseMs = leaseMs;
    this.#maxRetries = maxRetries;
    this.#serializer = serializer as Serializer<T>;
    this.#storage = openStorage(location, { queue: name, fsync, text: serializer === jsonSerializer });
    internals.set(this, {
      name,
      leaseMs,
      storage: this.#storage,
      open: (delivery) => this.#open(delivery),
      unreadable: (error) => this.#unreadable(error),
      attach: (consumer) => this.#attach(consumer),
    });
  }

  /**
   * Adds a job and resolves once it is committed. With a `jobId` that the queue knows already, nothing is changed and
   * the id is that of the existing job. Rejects with `PayloadError`, `StorageError`, `QueueClosedError`.
   */
  async put(data: T, options?: PutOptions): Promise<Enqueued> {
    const { jobId, delayMs, maxRetries, timeoutMs, signal } = readPutOptions(options);
    if (isEnqueueItem(data)) throw wrongType("data", "a payload (an EnqueueItem is for `putMany`)", data);
    const left = countdown(timeoutMs);
    const encoding = encode(this.#serializer, data);
    const payload = encoding instanceof Promise ? await unlessAborted(encoding, signal) : encoding;
    const entry = { payload, jobId, delayMs, maxAttempts: (maxRetries ?? this.#maxRetries) + 1 };
    const [enqueued] = await this.#storage.put([entry], { timeoutMs: left(), signal });
    return enqueued as Enqueued;
  }

  /** Adds all items in one transaction, or none. The results are in the order of the items. Rejects as `put` does. */
  async putMany(items: Iterable<T | EnqueueItem<T>>, options?: WaitOptions): Promise<Enqueued[]> {
    const { timeoutMs, signal } = readWaitOptions(options);
    const left = countdown(timeoutMs);
    const drafts = draftsOf(items);
    this.#refuseIfClosed();
    if (drafts.length === 0) return [];
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
    return this.#storage.put(entries, { timeoutMs: left(), signal });
  }

  /**
   * Waits for a job and claims it. It must be settled, or its lease extended, before the lease ends: nothing does
   * that by itself. Rejects with `EmptyError` on time-out, `QueueClosedError`, `StorageError`.
   */
  async get(options?: WaitOptions): Promise<Job<T>> {
    const [job] = await this.#take(1, readWaitOptions(options));
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
    return this.#take(batchLimit(limit, "limit"), readWaitOptions(options));
  }

  /**
   * Claims jobs one at a time, for ever: until the signal aborts or the queue closes. Leaving the loop leaves the job
   * leased.
   */
  jobs(options?: JobsOptions): AsyncIterable<Job<T>> {
    const { signal } = readJobsOptions(options);
    this.#refuseIfClosed();
    return this.#iterate(signal);
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
      lastError: describeIfGiven(lastError),
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
      lastError: describeIfGiven(lastError),
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
    const leaseUntil = await this.#storage.extend(lease, extension(ms, "ms"));
    ClaimedJob.leaseMoved(job, leaseUntil);
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
    const { onProgress, ...check } = readIntegrityOptions(options);
    return this.#storage.checkIntegrity({ ...check, onProgress: harmless(onProgress) });
  }

  /**
   * Copies the file, with all its queues, as it is at one moment, while anybody may go on writing, and verifies the
   * copy. `directory` must not exist yet, and its parent must. If this rejects (`StorageError`, `QueueClosedError`),
   * nothing is left behind.
   */
  async backup(directory: string | URL, options?: BackupOptions): Promise<BackupReport> {
    const destination = readDirectory(directory);
    const { onProgress } = readBackupOptions(options);
    return this.#storage.backup({ destination, onProgress: harmless(onProgress) });
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
    });
  }

  /**
   * Ends what waits for a job at once (`QueueClosedError`), stops the workers on this queue gracefully (until then
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
    if (this.#consumers.size > 0) await Promise.all(Array.from(this.#consumers, (consumer) => consumer.stop()));
    await this.#storage.close();
  }

  /** Claims up to `limit` jobs, passing over those that cannot be decoded. Waits only for the first. */
  async #take(limit: number, { timeoutMs, signal }: Wait): Promise<Job<T>[]> {
    const left = countdown(timeoutMs);
    const jobs: Job<T>[] = [];
    try {
      for (;;) {
        const wait = { timeoutMs: jobs.length > 0 ? 0 : left(), signal };
        const deliveries = await this.#claim(limit - jobs.length, wait);
        const opened = await Promise.all(deliveries.map((delivery) => this.#openOrBury(delivery, signal)));
        const readable = opened.filter((job) => job !== undefined);
        jobs.push(...readable);
        if (signal?.aborted) throw signal.reason;
        if (jobs.length === limit || readable.length === deliveries.length) return jobs;
      }
    } catch (error) {
      if (signal?.aborted) await Promise.all(jobs.map((job) => this.#tryTo({ event: "release" }, job)));
      else if (jobs.length > 0) return jobs;
      throw error;
    }
  }

  async #claim(limit: number, { timeoutMs, signal }: Wait): Promise<Delivery[]> {
    const request = { limit, leaseMs: this.#leaseMs, timeoutMs };
    return withEither(this.#ending.signal, signal, (either) => this.#storage.claim({ ...request, signal: either }));
  }

  /** A job that cannot be decoded becomes a dead letter, one whose caller went away meanwhile is given back. */
  async #openOrBury(delivery: Delivery, signal: AbortSignal | undefined): Promise<Job<T> | undefined> {
    try {
      const opened = this.#open(delivery);
      return opened instanceof Promise ? await unlessAborted(opened, signal) : opened;
    } catch (error) {
      await this.#tryTo(signal?.aborted ? { event: "release" } : this.#unreadable(error), delivery);
      return undefined;
    }
  }

  #open(delivery: Delivery): ClaimedJob<T> | Promise<ClaimedJob<T>> {
    const decoded = decode(this.#serializer, delivery.payload);
    if (!isPromiseLike(decoded)) return new ClaimedJob(delivery, decoded, this);
    return Promise.resolve(decoded).then((data) => new ClaimedJob(delivery, data, this));
  }

  #unreadable(error: unknown): Settlement {
    const lastError = describeDecodeError(this.#serializer, error);
    return { event: "fail", lastError, reason: "undecodable_payload", category: undefined };
  }

  async *#iterate(signal: AbortSignal | undefined): AsyncGenerator<Job<T>, void, undefined> {
    try {
      for (;;) yield* await this.#take(1, { signal });
    } catch (error) {
      if (!signal?.aborted && !(error instanceof QueueClosedError)) throw error;
    }
  }

  async #settle(job: Lease, settlement: Settlement, error?: unknown): Promise<void> {
    const lease = readLease(job);
    const settling = this.#storage.settle(lease, settlement);
    for (const consumer of this.#consumers) consumer.settledByHand(lease.receipt, settling, settlement, error);
    await settling;
  }

  /** For deliveries that nobody waits for any more: if this fails, their lease runs out. */
  async #tryTo(settlement: Settlement, lease: Lease): Promise<void> {
    try {
      await this.#storage.settle(lease, settlement);
    } catch {
      // The next operation that somebody waits for meets the same fault, and reports it.
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

function describeIfGiven(lastError: unknown): string | undefined {
  return lastError === undefined ? undefined : describeThrown(lastError);
}

function harmless<P>(listener: ((progress: P) => void) | undefined): ((progress: P) => void) | undefined {
  return listener && ((progress) => void callSafely("onProgress", listener, progress));
}

function isPromiseLike<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof (value as PromiseLike<T> | null | undefined)?.then === "function";
}
