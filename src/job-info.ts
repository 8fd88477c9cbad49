import { describeDecodeError, type Serializer } from "./serializer.ts";
import type { FailureReason, JobState } from "./state.ts";
import type { FailedRecord, JobRecord } from "./storage/storage.ts";

/** A job as it stands in the queue, seen without claiming it. */
export interface JobInfo {
  readonly id: number;
  /** The queue's name. */
  readonly queue: string;
  readonly state: JobState;
  /** Deliveries so far. */
  readonly attempts: number;
  /** When it is, or was, due. */
  readonly availableAt: Date;
  /** When the lease of its delivery ends, if it is being processed. */
  readonly leaseExpiresAt?: Date | undefined;
  /** What the producer called it, if it did. */
  readonly jobId?: string | undefined;
  /** What its last failed delivery left, as `Name: message`. */
  readonly lastError?: string | undefined;
  readonly createdAt: Date;
  /** When its state, or its lease, last changed. */
  readonly updatedAt: Date;
}

/** What is known of every dead letter. */
export interface FailedDetails {
  readonly id: number;
  /** Deliveries in all. */
  readonly attempts: number;
  /** Why it is dead; `legacy_unknown` if that was not stored, or is not known to this version. */
  readonly reason: FailureReason;
  /** What `fail` or `Reject` filed it under. */
  readonly category?: string | undefined;
  readonly lastError?: string | undefined;
  readonly jobId?: string | undefined;
  readonly createdAt: Date;
  /** When it became a dead letter. */
  readonly updatedAt: Date;
  /** The bytes that are stored. */
  readonly rawPayload: Uint8Array;
}

/** A dead letter, with its payload if the queue's serializer can decode that. */
export type FailedMessage<T> = FailedDetails &
  ({ readonly decoded: true; readonly data: T } | { readonly decoded: false; readonly decodeError: string });

export function jobInfo(queue: string, record: JobRecord): JobInfo {
  const { id, state, attempts, availableAt, leaseUntil, jobId, lastError, createdAt, updatedAt } = record;
  return {
    id,
    queue,
    state,
    attempts,
    availableAt: new Date(availableAt),
    leaseExpiresAt: leaseUntil === undefined ? undefined : new Date(leaseUntil),
    jobId,
    lastError,
    createdAt: new Date(createdAt),
    updatedAt: new Date(updatedAt),
  };
}

export function failedDetails({ payload, createdAt, updatedAt, ...rest }: FailedRecord): FailedDetails {
  return { ...rest, createdAt: new Date(createdAt), updatedAt: new Date(updatedAt), rawPayload: payload };
}

/** Never rejects: one that cannot be decoded is shown as it is. */
export async function failedMessage<T>(serializer: Serializer<T>, record: FailedRecord): Promise<FailedMessage<T>> {
  const details = failedDetails(record);
  try {
    // Whatever the serializer does to its bytes: these are for looking at.
    return { ...details, decoded: true, data: await serializer.decode(record.payload.slice()) };
  } catch (error) {
    return { ...details, decoded: false, decodeError: describeDecodeError(serializer, error) };
  }
}
