import {
  DeduplicationConflictError,
  FullError,
  LeaseExpiredError,
  NotFoundError,
  PayloadError,
  QueueClosedError,
  StorageError,
} from "../errors.ts";

export type Refused = "lost" | "aborted" | "closed" | "full" | "oversized" | "missing";

/** Which event could not be added to which queue. */
export interface ConflictOnWire {
  readonly jobId: string;
  readonly queue: string;
}

/** Why the storage did not do what was asked. */
export function refusal(refused: Refused, signal: AbortSignal | undefined): unknown {
  switch (refused) {
    case "lost":
      return new LeaseExpiredError(
        "This delivery no longer holds the job: its lease ended, or it was settled already. Nothing was changed.",
      );
    case "aborted":
      return signal?.reason;
    case "closed":
      return new QueueClosedError("The queue was closed.");
    case "full":
      return new FullError("The queue is full: it holds `maxPendingJobs` jobs. Nothing was added; try again later.");
    case "oversized":
      return new FullError("More jobs than `maxPendingJobs` at once never fit. Nothing was added; put them in parts.");
    case "missing":
      return new NotFoundError("The queue has no dead letter with this id. Nothing was changed.");
  }
}

/** An event that is not what its identity says it is. */
export function conflictOf({ jobId, queue }: ConflictOnWire): DeduplicationConflictError {
  return new DeduplicationConflictError(
    `The event ${jobId} was refused: in ${queue} an event with the same identity and another payload is there already. ` +
      "Nothing was written.",
  );
}

/** One call that asks for more than may be under way at all. */
export function tooLarge(bytes: number, limit: number): PayloadError {
  const [got, most] = [bytes, limit].map((size) => Math.ceil(size / 1024 / 1024));
  return new PayloadError(
    `One call can store at most ${most} MiB, got ${got} MiB. Store large data elsewhere and its place here.`,
  );
}

/** A producer that never waits. */
export function flooded(place: string, limit: number): StorageError {
  const most = limit / 1024 / 1024;
  return new StorageError(
    "BUSY",
    `More than ${most} MiB wait to be written to ${place}. Await earlier calls before making more.`,
  );
}

/** What a thread died of that never said a word: without its file, only another build of the program can help. */
export function neverStarted(cause: unknown): unknown {
  const { code } = (cause ?? {}) as { code?: unknown };
  // What bundlers leave of `new Worker(new URL(…))` throws a TypeError, if not the missing file is noticed first.
  if (!(cause instanceof TypeError) && code !== "MODULE_NOT_FOUND" && code !== "ERR_MODULE_NOT_FOUND") return cause;
  return new StorageError(
    "BAD_LOCATION",
    "localqueue's storage thread could not be started, because the package was bundled or moved: its files " +
      "(thread.js, side.js, lease-thread.js) are not beside its code. Keep localqueue external to the bundle.",
    { cause },
  );
}
