import type { FailureReason, JobState } from "../state.ts";
import type { BackupReport, BackupRequest, IntegrityCheck, IntegrityReport } from "./care.ts";

/**
 * The seam between the queue and a database: one logical queue, about a dozen verbs. A storage performs transitions
 * and waits; it knows nothing of payload formats, handlers or retry policies. Every promise settles after COMMIT.
 *
 * Rejections: `StorageError`; `LeaseExpiredError` (settle, extend); `DeduplicationConflictError` (dispatch, settle); `NotFoundError` (a dead letter by its id);
 * `QueueClosedError` after `close()`; and `signal.reason` for a wait that was aborted.
 */
export interface Storage {
  /**
   * Adds all entries in one transaction, or none. Payloads are copied before the call returns. Where there is a limit
   * waits for room, in the order of the calls; rejects with `FullError` when none came in time.
   */
  put(entries: readonly Entry[], wait: Wait): Promise<Enqueued[]>;
  /**
   * Adds each envelope to each of its queues, whatever the storage's own is, all in one transaction or none; there is no
   * limit. The results are in the order of `queues`. Rejects with `DeduplicationConflictError`.
   */
  dispatch(envelopes: readonly Envelope[]): Promise<Enqueued[][]>;
  /** Claims up to `limit` due jobs in one transaction, lowest id first. Resolves to `[]` when the wait ends. */
  claim(request: ClaimRequest): Promise<Delivery[]>;
  /** Ends a delivery; resolves to the state in which the job is now. */
  settle(lease: Lease, move: Settlement): Promise<JobState>;
  /** Moves the end of the lease to `ms` from now; resolves to that end (milliseconds since the epoch). */
  extend(lease: Lease, ms: number): Promise<number>;
  /** Ends every lease that has run out; resolves to their number. Claims do this by themselves. */
  reclaim(): Promise<number>;
  stats(): Promise<QueueStats>;
  /** All queues whose name begins so, with their counts, sorted by name (code units). */
  queues(prefix: string): Promise<QueueCounts[]>;
  /** The job with this id or jobId, whatever its state. */
  find(by: JobKey): Promise<JobRecord | undefined>;
  /** Jobs of one state, lowest id first. */
  list(which: ListRequest): Promise<JobRecord[]>;
  /** Dead letters, lowest id first. */
  listFailed(which: FailedRequest): Promise<FailedRecord[]>;
  /** How the database, this queue and this program's engine are doing. Changes nothing. */
  diagnostics(): Promise<StorageDiagnostics>;
  /** Deletes a job that waits to be delivered; resolves to whether it did. */
  remove(id: number): Promise<boolean>;
  /**
   * Makes dead letters ready, with a fresh budget; resolves to their number. For one that is none: `NotFoundError`.
   * A filter stops where the queue is full. With no room for a single one: `FullError`.
   */
  retryFailed(which: FailedSelection): Promise<number>;
  /** Deletes dead letters; resolves to their number. For one that is none: `NotFoundError`. */
  purgeFailed(which: FailedSelection): Promise<number>;
  /** Deletes the acknowledged jobs that were last changed before then, and the dead letters if so asked. */
  purge(request: PurgeRequest): Promise<number>;
  /** Looks through everything that is stored; changes nothing. */
  checkIntegrity(check: IntegrityCheck): Promise<IntegrityReport>;
  /** Copies everything as it is at one moment, while others write, and verifies the copy. */
  backup(request: BackupRequest): Promise<BackupReport>;
  /** Gives space that is not used any more back to the disk; refuses with BUSY while a job is being processed. */
  vacuum(): Promise<void>;
  /** A consumer whose leases the storage renews, also while this thread's event loop is blocked. */
  consume(settings: ConsumerSettings, listener: ConsumerListener): Consumer;
  /** No put waits for room any more: those that do, and those that would, reject with `QueueClosedError`. */
  stopWaiting(): void;
  /**
   * Ends waiting calls at once (`QueueClosedError`); commits what was accepted, or rejects it after 500 ms when the
   * database is locked. Idempotent.
   */
  close(): Promise<void>;
}

/** What a storage is opened with, beside its location. */
export interface StorageSettings {
  /** The logical queue's name. */
  readonly queue: string;
  /** Payloads are text: deliveries carry it as such where that loses nothing, which is cheaper than bytes. */
  readonly text?: boolean | undefined;
  readonly fsync: boolean | undefined;
  /** How many jobs may be ready or processing for this object to add more. */
  readonly maxPendingJobs?: number | undefined;
  /** Kept as long as there is a consumer; absent = finished jobs are kept for ever. */
  readonly retention?: Retention | undefined;
}

/** How long finished jobs are kept, in milliseconds after their last change; absent = for ever. */
export interface Retention {
  readonly ackedMs?: number | undefined;
  readonly failedMs?: number | undefined;
}

/** How long a call may take. */
export interface Wait {
  /** For the whole call; 0 = do not wait; absent = for work or room for ever, for a lock 30 s. */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface Entry {
  /** Bytes, or text to be stored as UTF-8. */
  readonly payload: Uint8Array | string;
  readonly jobId: string | undefined;
  readonly delayMs: number;
  /** Deliveries allowed in all. */
  readonly maxAttempts: number;
  /** What links the job to the trace of its producer: stored, and given back with each delivery. */
  readonly context?: string | undefined;
}

/** One payload for several queues: an event and its subscriptions. Not to be changed once it was handed over. */
export interface Envelope {
  /** Stored as UTF-8. */
  readonly payload: string;
  /** The same in each queue. */
  readonly jobId: string;
  /** At least one. */
  readonly queues: readonly string[];
  /** What makes it the same event under another `jobId`, and what must then be the same as well. */
  readonly identity: Identity | undefined;
  /** Deliveries allowed in all, from each queue. */
  readonly maxAttempts: number;
  /** See `Entry`. */
  readonly context?: string | undefined;
}

export interface Identity {
  readonly key: string;
  /** Of the payload. */
  readonly fingerprint: string;
}

/** The outcome of a put. */
export interface Enqueued {
  readonly id: number;
  /** `false` when the `jobId` or the identity was known already: `id` is the existing job's, and nothing was changed. */
  readonly inserted: boolean;
}

export interface ClaimRequest extends Wait {
  readonly limit: number;
  readonly leaseMs: number;
}

/** Dead letters of a cause; what is absent does not matter. */
export interface FailedFilter {
  readonly reason?: FailureReason | undefined;
  readonly category?: string | undefined;
}

export type FailedSelection = { readonly id: number } | FailedFilter;

export interface PurgeRequest {
  readonly olderThanMs: number;
  readonly includeFailed: boolean;
}

/** What proves that a delivery is held. */
export interface Lease {
  readonly id: number;
  readonly receipt: string;
}

export interface Delivery extends Lease {
  /** Text only if the storage was opened for it, and only if it stands for the very same bytes in UTF-8. */
  readonly payload: Uint8Array | string;
  /** 1 at the first delivery. */
  readonly attempt: number;
  readonly jobId: string | undefined;
  /** Milliseconds since the epoch. */
  readonly leaseUntil: number;
  readonly enqueuedAt: number;
  /** See `Entry`. */
  readonly context: string | undefined;
}

/** The ways in which the holder ends a delivery. */
export type Settlement =
  | {
      readonly event: "ack";
      /**
       * Commits with the ack, or neither does. Each job that comes of it, or was there, is linked to this one, and
       * belongs with all that came of it to the executions that this one belongs to.
       */
      readonly emit?: readonly Envelope[] | undefined;
    }
  | {
      readonly event: "nack";
      readonly delayMs: number;
      readonly lastError: string | undefined;
      /** Stored if this was the last allowed delivery. */
      readonly exhaustedReason: FailureReason;
    }
  | {
      readonly event: "fail";
      readonly lastError: string | undefined;
      readonly reason: FailureReason;
      readonly category: string | undefined;
    }
  | {
      readonly event: "release";
      /** Absent: the job is ready at once. */
      readonly backoff?: ReleaseBackoff | undefined;
    };

/** How a job is given back that cannot be handled for the time being. */
export interface ReleaseBackoff {
  /** How long it waits after the first release in a row, doubled with each that follows, at most ten times. */
  readonly initialMs: number;
  readonly maxMs: number;
  readonly lastError: string;
  /** Stored if it becomes a dead letter, because it was released too often and this was the last allowed delivery. */
  readonly exhaustedReason: FailureReason;
}

export interface QueueStats {
  /** Waiting to be delivered, those that wait for their time included. */
  readonly ready: number;
  readonly processing: number;
  readonly acked: number;
  readonly failed: number;
}

export interface QueueCounts extends QueueStats {
  readonly queue: string;
}

/** What names one job. */
export type JobKey = { readonly id: number } | { readonly jobId: string };

/** A job as it is stored; times are milliseconds since the epoch. */
export interface JobRecord {
  readonly id: number;
  readonly state: JobState;
  /** Deliveries so far. */
  readonly attempts: number;
  readonly availableAt: number;
  readonly leaseUntil: number | undefined;
  readonly jobId: string | undefined;
  readonly lastError: string | undefined;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface FailedRecord extends Omit<JobRecord, "state" | "availableAt" | "leaseUntil"> {
  readonly reason: FailureReason;
  readonly category: string | undefined;
  readonly payload: Uint8Array;
}

export interface ListRequest {
  readonly state: JobState;
  readonly limit: number;
  /** Only those with a higher id: the last one of the page before. */
  readonly afterId?: number | undefined;
}

export interface FailedRequest {
  readonly limit: number;
  /** How many to pass over. */
  readonly offset?: number | undefined;
  /** Only those with a higher id: the last one of the page before. */
  readonly afterId?: number | undefined;
  readonly reason?: FailureReason | undefined;
  readonly category?: string | undefined;
}

/** What can be read off any database, in one snapshot. Ages and durations are milliseconds; `null` = there is none. */
export interface DatabaseDiagnostics {
  /** When the snapshot was taken, in ISO 8601. */
  readonly observedAt: string;
  readonly databaseSizeBytes: number | null;
  readonly ready: number;
  readonly processing: number;
  readonly acked: number;
  readonly failed: number;
  /** How long the job that is next has been due. */
  readonly oldestAvailableAgeMs: number | null;
  /** When the first job that waits for its time is due. */
  readonly nextDueInMs: number | null;
  /** How long ago a lease was renewed the last time, among the thousand that end first: the longest. */
  readonly oldestProcessingUpdatedAgeMs: number | null;
  readonly activeLeases: number;
  /** Leases that ran out; the next claim ends them. */
  readonly expiredLeases: number;
  readonly oldestExpiredLeaseAgeMs: number | null;
  /** What should be looked after, in words. */
  readonly warnings: readonly string[];
}

/** What there is to say of a file only. */
export interface FileFacts {
  /** The SQLite library, its version, and whether several processes may write with it. */
  readonly driver: string;
  readonly sqliteVersion: string;
  readonly sqliteSafe: boolean;
  readonly journalMode: string;
  readonly walSizeBytes: number | null;
  readonly shmSizeBytes: number | null;
  /** How many pages the write-ahead log has room for. */
  readonly walPages: number;
  readonly pageCount: number;
  readonly pageSize: number;
  /** Pages that are free for what comes next. */
  readonly freelistCount: number;
}

export interface FileDiagnostics extends DatabaseDiagnostics, FileFacts {}

/** What there is to say of a PostgreSQL server only. */
export interface ServerFacts {
  readonly serverVersion: string;
  readonly databaseSchema: string;
}

/** What this program's engine on the directory has counted since it was opened, for all queues. */
export interface EngineCounts {
  /** Transactions, the operations in them, per transaction on average and at most. */
  readonly groupCommits: number;
  readonly groupCommitSteps: number;
  readonly groupCommitMean: number;
  readonly groupCommitLargest: number;
  /** How often, and for how long in all, it waited for the lock of another connection. */
  readonly lockWaits: number;
  readonly lockWaitMs: number;
  /** How often its thread was woken, and how often it woke because its time had come. */
  readonly wakeUps: number;
  readonly timerWakeUps: number;
  /** Pages in the write-ahead log that its last checkpoint had to leave there, because somebody still reads. */
  readonly walHeldBackPages: number;
}

/** The job that a worker of this program has been handling the longest. */
export interface LongestRunning {
  readonly longestRunningJobId: number | null;
  readonly longestRunningMs: number | null;
}

/** What is about files is there for SQLite only, and what is about a server for PostgreSQL only. */
export interface StorageDiagnostics
  extends DatabaseDiagnostics,
    LongestRunning,
    Partial<FileFacts>,
    Partial<EngineCounts>,
    Partial<ServerFacts> {
  /** SQLite's number for how writes of this queue are flushed: 1 = NORMAL, 2 = FULL. */
  readonly synchronous?: number;
  /** Whether a confirmed write is on the disk. */
  readonly durabilityMode: "normal" | "full";
  /** How long an operation without a time-out waits for a lock. */
  readonly busyTimeoutMs: number;
}

export interface ConsumerSettings {
  /** Deliveries at a time; slots are numbered from 0. */
  readonly slots: number;
  readonly leaseMs: number;
  /** How often leases are renewed; `false` = never. */
  readonly heartbeatMs: number | false;
  /** How long a handler may run, measured by the storage; absent = for ever. */
  readonly timeoutMs: number | undefined;
  /** How long after that leases are still renewed. */
  readonly graceMs: number;
  /** Replaces the budget of the jobs that are claimed. */
  readonly maxAttempts: number | undefined;
}

/** What a consumer is told between `start` and the end of a delivery. Called on this thread, never re-entrantly. */
export interface ConsumerListener {
  /** The lease is gone: somebody else may have the job. */
  leaseLost(receipt: string): void;
  leaseRenewed(receipt: string, leaseUntil: number): void;
  /** The handler has run for `timeoutMs`. */
  timedOut(receipt: string): void;
  /** `graceMs` more have passed; the lease is no longer renewed. */
  overdue(receipt: string): void;
}

export interface Consumer {
  /**
   * Claims one job for a free slot; `undefined` when there was none for `waitMs` (0 = look once, Infinity = wait for
   * ever). Rejects when aborted or closed.
   */
  claim(
    slot: number,
    options: { readonly waitMs: number; readonly signal?: AbortSignal | undefined },
  ): Promise<Delivery | undefined>;
  /**
   * To be called right before the handler. `false`: this thread stalled so long that the storage gave the job back;
   * the delivery must be dropped without a word.
   */
  start(slot: number, lease: Lease): boolean;
  /** As `Storage.settle`, for a delivery of this slot. */
  settle(slot: number, lease: Lease, move: Settlement): Promise<JobState>;
  /** Stops renewing whatever is still held. Running handlers keep their leases until these expire. */
  close(): void;
}
