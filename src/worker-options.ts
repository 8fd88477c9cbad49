import {
  abortSignal,
  type Check,
  type Full,
  integer,
  type KnownOptions,
  LONGEST_TIMER_MS,
  type OptionsReader,
  option,
  optional,
  optionsReader,
  outOfRange,
  wrongType,
} from "./options.ts";
import { isRetryPolicy, RetryPolicy } from "./retry.ts";
import type { ConsumerSettings } from "./storage/storage.ts";

/** Any class; its instances and those of its subclasses are meant. */
export type ErrorClass = abstract new (...args: never[]) => unknown;

/**
 * Milliseconds until the next delivery of a job whose handler threw `error`; `attempt` is 1 for the first delivery.
 * If it throws itself, or returns no usable number, the default policy holds and the worker emits `error`.
 */
export type RetryFunction = (attempt: number, error: unknown) => number;

/** How a worker runs its handler. */
export interface WorkerOptions {
  /** Jobs at a time, 1 to 10,000. Default 1. */
  readonly concurrency?: number | undefined;
  /**
   * How often the lease of a running job is renewed, in milliseconds; must be shorter than the lease. `false` = never.
   * Default: a third of the lease.
   */
  readonly heartbeatMs?: number | false | undefined;
  /** What no retry can help: the job becomes a dead letter (`permanent_handler_error`) at once. Default none. */
  readonly permanentErrors?: readonly ErrorClass[] | undefined;
  /** How long a job whose handler threw waits for its next delivery. Default `RetryPolicy.exponential()`. */
  readonly retry?: RetryPolicy | RetryFunction | undefined;
  /**
   * How long a handler may run, in milliseconds, up to 518,400,000 (six days). Then its signal aborts, and when it settles, or
   * `graceMs` later, the delivery counts as failed. Default: for ever.
   */
  readonly timeoutMs?: number | undefined;
  /** How long `stop()` lets handlers finish before it aborts them, in milliseconds. Default 30,000. */
  readonly graceMs?: number | undefined;
}

/** How a run ends. */
export interface RunOptions {
  /** Stops the worker, as `stop()` does. */
  readonly signal?: AbortSignal | undefined;
}

/** As far as the storage can measure. */
const LONGEST_HANDLER_MS = 518_400_000;

type Checked = Full<WorkerOptions, "concurrency" | "permanentErrors" | "retry" | "graceMs">;
export type CheckedWorkerOptions = Full<WorkerOptions, Exclude<keyof WorkerOptions, "timeoutMs">>;

/** What also helps out when a retry function of the user's does not work. */
export const defaultRetry: RetryPolicy = RetryPolicy.exponential();

const interval = integer(1, 86_400_000, " or `false`");

const heartbeat: Check<number | false> = (value, name) => (value === false ? false : interval(value, name));

const errorClasses: Check<readonly ErrorClass[]> = (value, name) => {
  if (!Array.isArray(value)) throw wrongType(name, "an array of classes", value);
  value.forEach((item: unknown, index) => {
    const isClass = typeof item === "function" && typeof item.prototype === "object";
    if (!isClass) throw wrongType(`${name}[${index}]`, "a class", item);
  });
  return Object.freeze([...value]);
};

const retry: Check<RetryPolicy | RetryFunction> = (value, name) => {
  if (typeof value === "function") return value as RetryFunction;
  if (!isRetryPolicy(value)) throw wrongType(name, "a RetryPolicy or a function", value);
  return value;
};

const readOptions: OptionsReader<Checked> = optionsReader<Checked>({
  concurrency: option(integer(1, 10_000), 1),
  heartbeatMs: optional(heartbeat),
  permanentErrors: option(errorClasses, []),
  retry: option(retry, defaultRetry),
  timeoutMs: optional(integer(1, LONGEST_HANDLER_MS)),
  graceMs: option(integer(0, LONGEST_TIMER_MS), 30_000),
});

export const runOptions: KnownOptions<Full<RunOptions>> = { signal: optional(abortSignal) };
export const readRunOptions: OptionsReader<Full<RunOptions>> = optionsReader(runOptions);

/** What a consumer's loop needs of the options, for so many slots. */
export function consumerSettings(options: CheckedWorkerOptions, leaseMs: number, slots: number): ConsumerSettings {
  const { heartbeatMs, timeoutMs, graceMs, retry } = options;
  const maxAttempts = typeof retry === "function" ? undefined : retry.maxAttempts;
  return { slots, leaseMs, heartbeatMs, timeoutMs, graceMs, maxAttempts };
}

export function readWorkerOptions(options: unknown, leaseMs: number): CheckedWorkerOptions {
  const checked = readOptions(options);
  const { heartbeatMs = Math.floor(leaseMs / 3) } = checked;
  if (heartbeatMs !== false && heartbeatMs >= leaseMs) {
    throw outOfRange("heartbeatMs", `shorter than the lease of ${leaseMs} ms`, heartbeatMs);
  }
  return Object.freeze({ ...checked, heartbeatMs });
}
