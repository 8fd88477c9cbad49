import { type EnqueueItemOptions, type FailOptions, itemOptions, type NackOptions } from "./job.ts";
import {
  abortSignal,
  boolean,
  type Check,
  type Full,
  finite,
  integer,
  type KnownOptions,
  type OptionsReader,
  option,
  optional,
  optionsReader,
  outOfRange,
  text,
  whole,
  wrongType,
} from "./options.ts";
import { jsonSerializer, type Serializer } from "./serializer.ts";

/** What a queue is like, as seen by one object: other processes may use other leases and budgets. */
export interface SimpleQueueOptions<T> {
  /** The logical queue; many share one database. 1 to 200 characters. Default "default". */
  readonly name?: string | undefined;
  /** How long a claimed job is the claimer's, in milliseconds, from 10 to 86,400,000. Default 60,000. */
  readonly leaseMs?: number | undefined;
  /** Deliveries after the first. Written into each job when it is put. Default 3. */
  readonly maxRetries?: number | undefined;
  /**
   * `true`: what was confirmed survives a power failure, too. `false`: a power failure may take the last moments
   * (a crash of the process takes nothing). SQLite's default is `false`.
   */
  readonly fsync?: boolean | undefined;
  /** Turns payloads into bytes and back. Default `jsonSerializer`. */
  readonly serializer?: Serializer<T> | undefined;
  /**
   * How many jobs, ready (or delayed) and processing, the queue may hold for this object to put more: 1 to 2^53 - 1.
   * Default: any number.
   */
  readonly maxPendingJobs?: number | undefined;
  /** How long finished jobs are kept, by any process with an open `Worker`. Default: for ever. */
  readonly retention?: RetentionOptions | undefined;
}

/** How long finished jobs are kept, in milliseconds after their last change, up to ten years. Default: for ever. */
export interface RetentionOptions {
  readonly ackedMs?: number | undefined;
  /** Dead letters. */
  readonly failedMs?: number | undefined;
}

/** How long a call may take. */
export interface WaitOptions {
  /** Bounds the whole call, in milliseconds; 0 = do not wait. Default: wait for work or room for ever, for a lock 30 s. */
  readonly timeoutMs?: number | undefined;
  /** Ends the wait: the call rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
}

/** How one job is put, and how long that may take. */
export interface PutOptions extends EnqueueItemOptions, WaitOptions {}

/** How an iteration over jobs ends. */
export interface JobsOptions {
  /** Ends the iteration. */
  readonly signal?: AbortSignal | undefined;
}

/** What the names of an event bus's queues begin with. */
export const BUS_PREFIX = "__bus__:";
const shortText = text(200);

const queueName: Check<string> = (value, name) => {
  const checked = shortText(value, name);
  if (checked.startsWith(BUS_PREFIX)) throw outOfRange(name, `a name that does not begin with "${BUS_PREFIX}"`, value);
  return checked;
};

const serializer: Check<Serializer<unknown>> = (value, name) => {
  const methods = value as Partial<Serializer<unknown>> | null;
  if (typeof methods?.encode !== "function" || typeof methods.decode !== "function") {
    throw wrongType(name, "an object with the functions `encode` and `decode`", value);
  }
  return methods as Serializer<unknown>;
};

/** Ten years. */
export const age: Check<number> = integer(0, 315_576_000_000);
export const readRetention: OptionsReader<Full<RetentionOptions>> = optionsReader({
  ackedMs: optional(age),
  failedMs: optional(age),
});

type Queue = Full<SimpleQueueOptions<unknown>, "name" | "leaseMs" | "maxRetries" | "serializer">;

export const readQueueOptions: OptionsReader<Queue> = optionsReader<Queue>({
  name: option(queueName, "default"),
  leaseMs: option(whole.leaseMs, 60_000),
  maxRetries: option(whole.retries, 3),
  fsync: optional(boolean),
  serializer: option<Serializer<unknown>>(serializer, jsonSerializer),
  retention: optional(readRetention),
  maxPendingJobs: optional(integer(1, Number.MAX_SAFE_INTEGER)),
});

const wait: KnownOptions<Full<WaitOptions>> = { timeoutMs: optional(finite(0)), signal: optional(abortSignal) };
const anything: Check<unknown> = (value) => value;

export const readWaitOptions: OptionsReader<Full<WaitOptions>> = optionsReader(wait);
export const readPutOptions: OptionsReader<Full<PutOptions, "delayMs">> = optionsReader({ ...itemOptions, ...wait });
export const readJobsOptions: OptionsReader<Full<JobsOptions>> = optionsReader({ signal: wait.signal });
export const readNackOptions: OptionsReader<Full<NackOptions, "delayMs">> = optionsReader({
  delayMs: option(whole.delayMs, 0),
  lastError: option(anything, undefined),
});
export const readFailOptions: OptionsReader<Full<FailOptions>> = optionsReader({
  lastError: option(anything, undefined),
  category: optional(shortText),
});

export const batchLimit: Check<number> = integer(1, 10_000);
export const extension: Check<number> = integer(1, 86_400_000);
