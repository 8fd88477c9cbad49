import type { Envelope } from "./storage.ts";

/** What a job costs beside its payload, roughly; without it, a batch of many small ones would take long. */
const JOB_BYTES = 256;

/** What a put weighs in a batch. */
export function weightOf(jobs: readonly { readonly payload: { readonly length: number } }[]): number {
  return jobs.reduce((sum, { payload }) => sum + payload.length + JOB_BYTES, 0);
}

/** The same for events: each is written once for each of its queues. */
export function weightOfEvents(events: readonly Envelope[]): number {
  return events.reduce((sum, { payload, queues }) => sum + (payload.length + JOB_BYTES) * queues.length, 0);
}
