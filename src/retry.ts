import { isDeepStrictEqual } from "node:util";
import { brand, hasBrand } from "./brand.ts";
import {
  anyText,
  boolean,
  type Check,
  type Full,
  finite,
  integer,
  LONGEST_DELAY_MS,
  type OptionsReader,
  option,
  optional,
  optionsReader,
  outOfRange,
  text,
  whole,
} from "./options.ts";

/** Symbols of the global registry: what one copy of the package made is recognised by another. */
const POLICY = Symbol.for("localqueue.RetryPolicy");
const RETRY = Symbol.for("localqueue.Retry");
const REJECT = Symbol.for("localqueue.Reject");

/** What every retry policy can say. */
export interface AttemptOptions {
  /**
   * Deliveries in all, from 1. Replaces the budget of the jobs that the worker claims, at the claim; by default the
   * budget that was written into each job when it was put.
   */
  readonly maxAttempts?: number | undefined;
}

/** The numbers of `RetryPolicy.exponential()`. */
export interface ExponentialOptions extends AttemptOptions {
  /** The delay after the first delivery, in milliseconds. Default 2,000. */
  readonly initialMs?: number | undefined;
  /** By how much each delay is longer than the one before, from 1 to 1,000. Default 4. */
  readonly factor?: number | undefined;
  /** No delay is longer, in milliseconds. Default 600,000. */
  readonly maxMs?: number | undefined;
  /** Takes a random part, between half and the whole, of each delay, so that what failed together comes back apart. Default `true`. */
  readonly jitter?: boolean | undefined;
}

/** How long a job whose handler threw waits for its next delivery. The default is `RetryPolicy.exponential()`. */
export class RetryPolicy {
  /** Deliveries in all; `undefined` = as many as the job was given when it was put. */
  readonly maxAttempts: number | undefined;

  private constructor(maxAttempts: number | undefined, delays: Delays) {
    this.maxAttempts = maxAttempts;
    // Hidden: a policy is to be passed on, not to be called.
    Object.defineProperty(this, POLICY, { value: Object.assign(delayBy(delays), delays) });
  }

  /** Delays that grow: 2 s, 8 s, 32 s, … up to 10 minutes by default, each shortened by up to half at random. */
  static exponential(options?: ExponentialOptions): RetryPolicy {
    const { initialMs, factor, maxMs, jitter, maxAttempts } = readExponentialOptions(options);
    if (maxMs < initialMs) throw outOfRange("maxMs", `at least \`initialMs\`, which is ${initialMs}`, maxMs);
    return new RetryPolicy(maxAttempts, { initialMs, factor, maxMs, jitter });
  }

  /** The same delay each time, in milliseconds. */
  static fixed(ms: number, options?: AttemptOptions): RetryPolicy {
    const delay = whole.delayMs(ms, "ms");
    const delays = { initialMs: delay, factor: 1, maxMs: delay, jitter: false };
    return new RetryPolicy(readAttemptOptions(options).maxAttempts, delays);
  }

  /** No delay. */
  static immediate(options?: AttemptOptions): RetryPolicy {
    return RetryPolicy.fixed(0, options);
  }
}

interface Delays {
  readonly initialMs: number;
  readonly factor: number;
  readonly maxMs: number;
  readonly jitter: boolean;
}

type DelayOf = ((attempt: number) => number) & Delays;

function delayBy({ initialMs, factor, maxMs, jitter }: Delays): (attempt: number) => number {
  return (attempt) => {
    const delay = Math.min(initialMs * factor ** (attempt - 1), maxMs);
    return Math.round(jitter ? delay * (0.5 + Math.random() / 2) : delay);
  };
}

/** What a handler can ask for by throwing `Retry`. */
export interface RetryOptions {
  /** Milliseconds until the next delivery. By default as the worker's retry policy has it. */
  readonly delayMs?: number | undefined;
  /** Stored as the job's last error. */
  readonly reason?: string | undefined;
}

/** Throw it in a handler to have the job delivered again, after a delay of your own choice. It counts as a delivery. */
export class Retry extends Error {
  static {
    Retry.prototype.name = "Retry";
    brand(Retry.prototype, RETRY);
  }
  readonly delayMs: number | undefined;

  constructor(options?: RetryOptions) {
    const { delayMs, reason } = readRetryOptions(options);
    super(reason);
    this.delayMs = delayMs;
  }
}

/** What a handler can add to a `Reject`. */
export interface RejectOptions {
  /** A word by which dead letters can be filtered, 1 to 200 characters. */
  readonly category?: string | undefined;
}

/** Throw it in a handler when no retry can help: the job becomes a dead letter (`rejected`) at once. */
export class Reject extends Error {
  static {
    Reject.prototype.name = "Reject";
    brand(Reject.prototype, REJECT);
  }
  readonly category: string | undefined;

  constructor(reason: string, options?: RejectOptions) {
    super(anyText(reason, "reason"));
    this.category = readRejectOptions(options).category;
  }
}

/** Milliseconds until the next delivery, `attempt` being 1 for the first. */
export function delayAfter(policy: RetryPolicy, attempt: number): number {
  return delayOf(policy)(attempt);
}

/** Whether two policies say the same. */
export function isSamePolicy(one: RetryPolicy, other: RetryPolicy): boolean {
  return one.maxAttempts === other.maxAttempts && isDeepStrictEqual({ ...delayOf(one) }, { ...delayOf(other) });
}

function delayOf(policy: RetryPolicy): DelayOf {
  return (policy as unknown as { readonly [POLICY]: DelayOf })[POLICY];
}

export function isRetryPolicy(value: unknown): value is RetryPolicy {
  return typeof value === "object" && value !== null && typeof Reflect.get(value, POLICY) === "function";
}

export function isReject(thrown: unknown): thrown is Reject {
  return hasBrand(thrown, REJECT);
}

/** The delay that a `Retry` asks for. Survives what a subclass may have made of it. */
export function requestedDelay(thrown: unknown): number | undefined {
  return hasBrand(thrown, RETRY) ? readOrNothing(thrown, "delayMs", whole.delayMs) : undefined;
}

/** The category that a `Reject` names. */
export function namedCategory(reject: Reject): string | undefined {
  return readOrNothing(reject, "category", category);
}

function readOrNothing<T>(thrown: object, name: string, check: Check<T>): T | undefined {
  try {
    return check(Reflect.get(thrown, name), name);
  } catch {
    return undefined;
  }
}

const category = text(200);
const attempts = { maxAttempts: optional(integer(1, 2_147_483_647)) };
const readAttemptOptions: OptionsReader<Full<AttemptOptions>> = optionsReader(attempts);
const readExponentialOptions: OptionsReader<Full<ExponentialOptions, "initialMs" | "factor" | "maxMs" | "jitter">> =
  optionsReader({
    ...attempts,
    initialMs: option(integer(1, LONGEST_DELAY_MS), 2_000),
    factor: option(finite(1, 1_000), 4),
    maxMs: option(integer(1, LONGEST_DELAY_MS), 600_000),
    jitter: option(boolean, true),
  });
const readRetryOptions: OptionsReader<Full<RetryOptions>> = optionsReader({
  delayMs: optional(whole.delayMs),
  reason: optional(anyText),
});
const readRejectOptions: OptionsReader<Full<RejectOptions>> = optionsReader({ category: optional(category) });
