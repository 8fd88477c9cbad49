/**
 * Everything that a caller may want to handle. Programs branch on `code`, which is stable across versions, realms
 * and copies of this package; `instanceof` works within one copy. Misused options are `TypeError` or `RangeError`.
 */
export type LocalQueueErrorCode =
  | "EMPTY"
  | "FULL"
  | "LEASE_EXPIRED"
  | "CLOSED"
  | "NOT_FOUND"
  | "DEDUPLICATION_CONFLICT"
  | "PAYLOAD"
  | "NO_SUBSCRIBERS"
  | "INVALID_EVENT"
  | StorageErrorCode;

export type StorageErrorCode =
  | "BUSY"
  | "DISK_FULL"
  | "READ_ONLY"
  | "CORRUPT"
  | "NOT_A_DATABASE"
  | "NEWER_SCHEMA"
  | "FILE_REPLACED"
  | "BAD_LOCATION"
  | "UNSUPPORTED_FILESYSTEM"
  | "IO"
  | "CONNECTION";

/** The base of all errors of this package; `cause` is kept where it quotes no payload. */
export abstract class LocalQueueError extends Error {
  static {
    LocalQueueError.prototype.name = "LocalQueueError";
  }
  abstract readonly code: LocalQueueErrorCode;
}

/** Nothing was ready in time. Code `EMPTY`. */
export class EmptyError extends LocalQueueError {
  static {
    EmptyError.prototype.name = "EmptyError";
  }
  override readonly code = "EMPTY" as const;
}

/** There was no room in time: the queue holds `maxPendingJobs` jobs. Nothing was added. Code `FULL`. */
export class FullError extends LocalQueueError {
  static {
    FullError.prototype.name = "FullError";
  }
  override readonly code = "FULL" as const;
}

/**
 * An event with the same identity and another payload is there already. Nothing was written.
 * Code `DEDUPLICATION_CONFLICT`.
 */
export class DeduplicationConflictError extends LocalQueueError {
  static {
    DeduplicationConflictError.prototype.name = "DeduplicationConflictError";
  }
  override readonly code = "DEDUPLICATION_CONFLICT" as const;
}

/** There is no such job, or not in the state that was asked for. Code `NOT_FOUND`. */
export class NotFoundError extends LocalQueueError {
  static {
    NotFoundError.prototype.name = "NotFoundError";
  }
  override readonly code = "NOT_FOUND" as const;
}

/**
 * The receipt no longer holds the job: its lease ended, it was settled already, or somebody else holds it now.
 * Nothing was changed. Code `LEASE_EXPIRED`.
 */
export class LeaseExpiredError extends LocalQueueError {
  static {
    LeaseExpiredError.prototype.name = "LeaseExpiredError";
  }
  override readonly code = "LEASE_EXPIRED" as const;
}

/** The queue (or worker) was closed. Code `CLOSED`. */
export class QueueClosedError extends LocalQueueError {
  static {
    QueueClosedError.prototype.name = "QueueClosedError";
  }
  override readonly code = "CLOSED" as const;
}

/** The payload cannot be stored without loss; the message names the path to the culprit. Code `PAYLOAD`. */
export class PayloadError extends LocalQueueError {
  static {
    PayloadError.prototype.name = "PayloadError";
  }
  override readonly code = "PAYLOAD" as const;
}

/** No subscription of the bus takes events of this type. Nothing was written. Code `NO_SUBSCRIBERS`. */
export class NoSubscribersError extends LocalQueueError {
  static {
    NoSubscribersError.prototype.name = "NoSubscribersError";
  }
  override readonly code = "NO_SUBSCRIBERS" as const;
}

/**
 * The data or an id of an event is not what its definition asks for; the message names the field. Nothing was written.
 * Code `INVALID_EVENT`.
 */
export class InvalidEventError extends LocalQueueError {
  static {
    InvalidEventError.prototype.name = "InvalidEventError";
  }
  override readonly code = "INVALID_EVENT" as const;
}

/** `failed`: certainly nothing was written. `unknown`: the write may yet prove to have happened. */
export type StorageOutcome = "failed" | "unknown";

/** The database could not do what was asked. `code` says why, `outcome` says what is known about the write. */
export class StorageError extends LocalQueueError {
  static {
    StorageError.prototype.name = "StorageError";
  }
  override readonly code: StorageErrorCode;
  readonly outcome: StorageOutcome;

  constructor(code: StorageErrorCode, message: string, options?: { outcome?: StorageOutcome; cause?: unknown }) {
    super(message, options?.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.outcome = options?.outcome ?? "failed";
  }
}
