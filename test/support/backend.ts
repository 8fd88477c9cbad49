import type { JobState } from "../../dist/state.js";
import type { Storage, StorageSettings } from "../../dist/storage/storage.js";

/** A kind of database as the contract suite sees it: storages to use, and the rows behind them to look at. */
export interface Backend {
  readonly name: string;
  /** A new, empty database of its own. */
  open(): Promise<Bench>;
}

/** One database on the test bench. */
export interface Bench {
  /** Another storage on it; closed with the bench. */
  storage(queue?: string, settings?: Partial<StorageSettings>): Storage;
  /** All rows by id, of one queue or of all. */
  jobs(queue?: string): Promise<StoredJob[]>;
  /** Everything that is stored of a job, in a form that shows each difference in value and type. */
  exact(id: number): Promise<unknown>;
  /** Changes a row behind the storages' backs. Not the state: a storage may keep count of these. */
  edit(id: number, changes: Edits): Promise<void>;
  /** Makes everything in the database `ms` older, as though that time had passed. */
  age(ms: number): Promise<void>;
  /** What came of which, as [parent, child], in order. */
  links(): Promise<(readonly [parent: number, child: number])[]>;
  /** Makes an execution out of these jobs behind the storages' backs. */
  track(execution: string, ids: readonly number[]): Promise<void>;
  /** The jobs that belong to an execution, by id. */
  tracked(execution: string): Promise<number[]>;
  /** Deletes a row behind the storages' backs. */
  remove(id: number): Promise<void>;
  /** Holds the lock that all writers need, until the function that it resolves to is called. */
  lock(): Promise<() => Promise<void>>;
  /** Closes the storages; removes the database unless `keep`. */
  close(options?: { keep: boolean }): Promise<void>;
}

export interface StoredJob {
  readonly id: number;
  readonly queue: string;
  readonly payload: string;
  readonly state: JobState;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly releases: number;
  readonly availableAt: number;
  readonly leaseUntil: number | null;
  readonly receipt: string | null;
  readonly lastError: string | null;
  readonly failureReason: string | null;
  readonly failureCategory: string | null;
  readonly jobId: string | null;
  readonly context: string | null;
  readonly identityKey: string | null;
  readonly fingerprint: string | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export type Edits = Partial<
  Pick<
    StoredJob,
    | "attempts"
    | "maxAttempts"
    | "releases"
    | "leaseUntil"
    | "receipt"
    | "lastError"
    | "failureReason"
    | "failureCategory"
    | "identityKey"
    | "fingerprint"
  >
>;

/** The column behind each property. */
export const STORED_COLUMNS: Readonly<Record<keyof StoredJob, string>> = {
  id: "id",
  queue: "queue",
  payload: "payload",
  state: "status",
  attempts: "attempts",
  maxAttempts: "max_attempts",
  releases: "releases",
  availableAt: "available_at",
  leaseUntil: "lease_until",
  receipt: "receipt",
  lastError: "last_error",
  failureReason: "failure_reason",
  failureCategory: "failure_category",
  jobId: "job_id",
  context: "trace_context",
  identityKey: "dedup_key",
  fingerprint: "dedup_fingerprint",
  createdAt: "created_at",
  updatedAt: "updated_at",
};
