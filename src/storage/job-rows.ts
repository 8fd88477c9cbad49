import { type JobState, STATES } from "../state.ts";
import type { FailedRecord, JobRecord, QueueStats } from "./storage.ts";

/** A row of either database, by the names of its columns, which are the same. */
type Row = { readonly [column: string]: unknown };

export function countsOf(row: Row): QueueStats {
  const [ready, processing] = [row["ready"] as number, row["processing"] as number];
  return { ready, processing, acked: row["acked"] as number, failed: row["failed"] as number };
}

export function jobOf(row: Row): JobRecord {
  return {
    state: STATES[row["status"] as number] as JobState,
    availableAt: row["available_at"] as number,
    leaseUntil: (row["lease_until"] as number | null) ?? undefined,
    ...commonOf(row),
  };
}

export function failedOf(row: Row, payload: Uint8Array): FailedRecord {
  return {
    reason: row["reason"] as FailedRecord["reason"],
    category: (row["category"] as string | null) ?? undefined,
    payload,
    ...commonOf(row),
  };
}

function commonOf(row: Row): Omit<JobRecord, "state" | "availableAt" | "leaseUntil"> {
  return {
    id: row["id"] as number,
    attempts: row["attempts"] as number,
    jobId: (row["job_id"] as string | null) ?? undefined,
    lastError: (row["last_error"] as string | null) ?? undefined,
    createdAt: row["created_at"] as number,
    updatedAt: row["updated_at"] as number,
  };
}
