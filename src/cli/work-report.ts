import { LocalQueueError, type Worker } from "../index.ts";
import { withCode } from "./failures.ts";
import { tell } from "./output.ts";
import { seconds } from "./wording.ts";

/** What became of the deliveries. */
export interface WorkReport {
  acked: number;
  /** Deliveries after which the job waits for another one. */
  retried: number;
  /** Jobs that became dead letters. */
  failed: number;
}

/** Counts what the worker does, and tells what did not go well. Payloads are not quoted. */
export function reportOn(worker: Worker<Uint8Array>): WorkReport {
  const report: WorkReport = { acked: 0, retried: 0, failed: 0 };
  /** A fault is told once, not at each attempt to go on; what was settled shows that it has passed. */
  let toldFault: string | undefined;
  const count = (what: keyof WorkReport): void => {
    report[what]++;
    toldFault = undefined;
  };
  worker.on("job:acked", () => count("acked"));
  worker.on("job:retried", ({ job, error, delayMs }) => {
    count("retried");
    tell(`Job ${job.id}: ${reasonOf(error)}; it comes again in ${seconds(delayMs)}`);
  });
  worker.on("job:failed", ({ job, error, reason }) => {
    count("failed");
    tell(`Job ${job.id}: ${reasonOf(error)}; it is a dead letter (${reason})`);
  });
  worker.on("lease:lost", ({ job }) => {
    tell(`Job ${job.id}: the lease was lost, so what becomes of this delivery does not count`);
  });
  worker.on("error", ({ error }) => {
    const fault = error instanceof LocalQueueError ? withCode(error) : reasonOf(error);
    if (fault === toldFault) return;
    toldFault = fault;
    tell(`${fault} Waiting for this to pass.`);
  });
  return report;
}

function reasonOf(error: unknown): string {
  if (error === undefined) return "given back too often";
  return error instanceof Error ? error.message : String(error);
}
