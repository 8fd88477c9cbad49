import { brand, hasBrand } from "./brand.ts";
import {
  type Check,
  type Full,
  integer,
  isStorable,
  type KnownOptions,
  type OptionsReader,
  option,
  optional,
  optionsReader,
  outOfRange,
  whole,
  wrongType,
} from "./options.ts";
import type { Delivery, Lease } from "./storage/storage.ts";

/** How a job is given back. */
export interface NackOptions {
  /** How long the job waits for its next delivery, in milliseconds. Default 0. */
  readonly delayMs?: number | undefined;
  /** Any thrown value; stored as `Name: message`, at most 2,000 characters. */
  readonly lastError?: unknown;
}

/** What is noted about a dead letter. */
export interface FailOptions {
  /** Any thrown value; stored as `Name: message`, at most 2,000 characters. */
  readonly lastError?: unknown;
  /** A word by which dead letters can be filtered, 1 to 200 characters. */
  readonly category?: string | undefined;
}

/** One delivery of a job. It is the caller's until it is settled or its lease ends. */
export interface Job<T> extends Lease {
  /** The number of the job in its database; all its deliveries share it. */
  readonly id: number;
  /** The payload. */
  readonly data: T;
  /** 1 at the first delivery. */
  readonly attempt: number;
  /** Proves that this delivery is the current one; each has its own. */
  readonly receipt: string;
  /** What the producer called the job, if it did. */
  readonly jobId: string | undefined;
  /** When the job was put. */
  readonly enqueuedAt: Date;
  /** When the lease ends, as of its last extension. */
  readonly leaseExpiresAt: Date;
  /** The same as `queue.ack(job)`. */
  ack(): Promise<void>;
  /** The same as `queue.nack(job, options)`. */
  nack(options?: NackOptions): Promise<void>;
  /** The same as `queue.fail(job, options)`. */
  fail(options?: FailOptions): Promise<void>;
  /** The same as `queue.extendLease(job, ms)`. */
  extendLease(ms: number): Promise<void>;
  /** The same as `queue.release(job)`. */
  release(): Promise<void>;
}

/** Where a job's shorthands lead. */
export interface JobOwner {
  ack(job: Lease): Promise<void>;
  nack(job: Lease, options?: NackOptions): Promise<void>;
  fail(job: Lease, options?: FailOptions): Promise<void>;
  extendLease(job: Lease, ms: number): Promise<void>;
  release(job: Lease): Promise<void>;
}

export class ClaimedJob<T> implements Job<T> {
  readonly id: number;
  readonly data: T;
  readonly attempt: number;
  readonly receipt: string;
  readonly jobId: string | undefined;
  readonly enqueuedAt: Date;
  readonly #owner: JobOwner;
  #leaseUntil: number;

  constructor(delivery: Delivery, data: T, owner: JobOwner) {
    this.id = delivery.id;
    this.data = data;
    this.attempt = delivery.attempt;
    this.receipt = delivery.receipt;
    this.jobId = delivery.jobId;
    this.enqueuedAt = new Date(delivery.enqueuedAt);
    this.#owner = owner;
    this.#leaseUntil = delivery.leaseUntil;
  }

  /** Notes a new end of the lease, if `job` is a job of ours and not just its id and receipt. */
  static leaseMoved(job: object, leaseUntil: number): void {
    if (#leaseUntil in job) job.#leaseUntil = leaseUntil;
  }

  get leaseExpiresAt(): Date {
    return new Date(this.#leaseUntil);
  }

  ack(): Promise<void> {
    return this.#owner.ack(this);
  }

  nack(options?: NackOptions): Promise<void> {
    return this.#owner.nack(this, options);
  }

  fail(options?: FailOptions): Promise<void> {
    return this.#owner.fail(this, options);
  }

  extendLease(ms: number): Promise<void> {
    return this.#owner.extendLease(this, ms);
  }

  release(): Promise<void> {
    return this.#owner.release(this);
  }
}

/** How one job is put. */
export interface EnqueueItemOptions {
  /**
   * Puts the job only if none of this queue has the same `jobId`, whatever became of that one, as long as its row is
   * not purged. 1 to 512 bytes in UTF-8.
   */
  readonly jobId?: string | undefined;
  /** How long the job waits before it is delivered, in milliseconds. Default 0. */
  readonly delayMs?: number | undefined;
  /** Deliveries after the first. Default: the queue's `maxRetries`. */
  readonly maxRetries?: number | undefined;
}

const ENQUEUE_ITEM = Symbol.for("localqueue.EnqueueItem");

/** A payload with options of its own, for `putMany`. */
export class EnqueueItem<T = unknown> {
  static {
    brand(EnqueueItem.prototype, ENQUEUE_ITEM);
  }
  readonly data: T;
  readonly jobId: string | undefined;
  readonly delayMs: number;
  readonly maxRetries: number | undefined;

  constructor(data: T, options?: EnqueueItemOptions) {
    const { jobId, delayMs, maxRetries } = readItemOptions(options);
    this.data = data;
    this.jobId = jobId;
    this.delayMs = delayMs;
    this.maxRetries = maxRetries;
  }
}

/** Also recognises the items of another copy of the package. */
export function isEnqueueItem<T>(item: T | EnqueueItem<T>): item is EnqueueItem<T> {
  return hasBrand(item, ENQUEUE_ITEM);
}

const jobId: Check<string> = (value, name) => {
  const expected = "a string of 1 to 512 bytes in UTF-8 without NUL or lone surrogates";
  if (typeof value !== "string") throw wrongType(name, expected, value);
  if (value === "" || Buffer.byteLength(value) > 512 || !isStorable(value)) throw outOfRange(name, expected, value);
  return value;
};

export const itemOptions: KnownOptions<Full<EnqueueItemOptions, "delayMs">> = {
  jobId: optional(jobId),
  delayMs: option(whole.delayMs, 0),
  maxRetries: optional(whole.retries),
};

const readItemOptions: OptionsReader<Full<EnqueueItemOptions, "delayMs">> = optionsReader(itemOptions);

/** An item of `putMany`, read. */
export interface Draft<T> extends Full<EnqueueItemOptions, "delayMs"> {
  readonly data: T;
}

export function draftsOf<T>(items: Iterable<T | EnqueueItem<T>>): Draft<T>[] {
  if (typeof items !== "object" || items === null || !(Symbol.iterator in items) || ArrayBuffer.isView(items)) {
    throw wrongType("items", "an array or another iterable of payloads", items);
  }
  return Array.from(items, (item) => {
    if (!isEnqueueItem(item)) return { data: item, ...readItemOptions(undefined) };
    const { data, jobId, delayMs, maxRetries } = item;
    return { data, ...readItemOptions({ jobId, delayMs, maxRetries }) };
  });
}

const id = integer(1, Number.MAX_SAFE_INTEGER);

/** The id and the receipt of anything that has them. */
export function readLease(job: unknown): Lease {
  if (typeof job !== "object" || job === null)
    throw wrongType("job", "a job, or an object with `id` and `receipt`", job);
  const lease = job as Lease;
  const receipt: unknown = lease.receipt;
  if (typeof receipt !== "string") throw wrongType("job.receipt", "a string", receipt);
  if (receipt === "") throw outOfRange("job.receipt", "a string that is not empty", receipt);
  return { id: id(lease.id, "job.id"), receipt };
}
