/**
 * The life of a job as data and pure functions: no I/O, no clock. Each storage performs every transition as one
 * guarded statement; the contract suite runs each cell of this table against the real statements.
 */

export type JobState = "ready" | "processing" | "acked" | "failed";

/** A state's place here is its number in the column `status`, which the Python package shares. */
export const STATES: readonly JobState[] = ["ready", "processing", "acked", "failed"];

export type JobEvent = "claim" | "extend" | "ack" | "nack" | "fail" | "release" | "expire" | "replay";
export const EVENTS: readonly JobEvent[] = ["claim", "extend", "ack", "nack", "fail", "release", "expire", "replay"];

/** Gives back in a row that do not count as deliveries; without a bound, a job that stops its process would loop. */
export const MAX_RELEASES = 10;

/** Machine-readable reasons of dead letters, as stored in the column `failure_reason`. */
export type FailureReason =
  | "retries_exhausted"
  | "permanent_handler_error"
  | "handler_timeout"
  | "explicit_permanent_failure"
  | "undecodable_payload"
  | "rejected"
  | "unknown_event_type"
  | "invalid_envelope"
  | "invalid_payload"
  | "no_handler"
  /** Never stored: what is read where no reason is stored, or one that this version does not know. */
  | "legacy_unknown";

export const FAILURE_REASONS: readonly FailureReason[] = [
  "retries_exhausted",
  "permanent_handler_error",
  "handler_timeout",
  "explicit_permanent_failure",
  "undecodable_payload",
  "rejected",
  "unknown_event_type",
  "invalid_envelope",
  "invalid_payload",
  "no_handler",
  "legacy_unknown",
];

/** What decides where an event leads. */
export interface JobFacts {
  readonly state: JobState;
  /** Claims so far, this delivery included. */
  readonly attempts: number;
  /** Claims allowed in all. */
  readonly maxAttempts: number;
  /** Uncounted releases in a row. */
  readonly releases: number;
}

export interface JobOutcome extends JobFacts {
  /** Set when the event itself decides why the job failed. */
  readonly reason?: FailureReason;
}

type Move = (job: JobFacts) => JobOutcome;

/** Another delivery if the budget allows one, else a dead letter. */
const endDelivery: Move = (job) =>
  job.attempts < job.maxAttempts
    ? { ...job, state: "ready", releases: 0 }
    : { ...job, state: "failed", releases: 0, reason: "retries_exhausted" };

const moves: { readonly [S in JobState]: { readonly [E in JobEvent]?: Move } } = {
  ready: {
    claim: (job) =>
      job.attempts < job.maxAttempts
        ? { ...job, state: "processing", attempts: job.attempts + 1 }
        : { ...job, state: "failed", reason: "retries_exhausted" },
  },
  processing: {
    extend: (job) => job,
    ack: (job) => ({ ...job, state: "acked" }),
    nack: endDelivery,
    fail: (job) => ({ ...job, state: "failed", releases: 0 }),
    release: (job) =>
      job.releases < MAX_RELEASES
        ? { ...job, state: "ready", attempts: job.attempts - 1, releases: job.releases + 1 }
        : { ...endDelivery(job), releases: job.releases },
    expire: endDelivery,
  },
  acked: {},
  failed: {
    /** With a fresh budget. */
    replay: (job) => ({ ...job, state: "ready", attempts: 0, releases: 0 }),
  },
};

/**
 * Where `event` leads a job, or `undefined` when the state does not know it. Everything in `processing` but `expire`
 * is for the holder alone: it needs the current receipt and an unexpired lease.
 */
export function transition(job: JobFacts, event: JobEvent): JobOutcome | undefined {
  return moves[job.state][event]?.(job);
}
