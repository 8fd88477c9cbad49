import * as channels from "./channels.ts";
import type { Ending, Work } from "./consumer-loop.ts";
import { FailurePolicy } from "./failure-policy.ts";
import type { HandlerContext, Result } from "./handler-run.ts";
import type { FailureReason, JobState } from "./state.ts";
import type { Delivery, Settlement } from "./storage/storage.ts";
import type { CheckedWorkerOptions } from "./worker-options.ts";

/** A delivery that was opened. */
export interface Assigned {
  readonly delivery: Delivery;
  /** Set if somebody listened when the handler was called. */
  observed: channels.ObservedRun | undefined;
}

export const ACKED: Ending = { settlement: { event: "ack" }, error: undefined };

/** What a worker and a subscription of an event bus do alike with their deliveries. */
export abstract class DeliveryWork<J extends Assigned> implements Work<J> {
  /** The name of the logical queue. */
  protected readonly queue: string;
  protected readonly policy: FailurePolicy;

  constructor(queue: string, options: Pick<CheckedWorkerOptions, "permanentErrors" | "retry">) {
    this.queue = queue;
    this.policy = new FailurePolicy(options, (fault) => this.report(fault));
  }

  abstract open(delivery: Delivery): J | Promise<J>;
  abstract unreadable(delivery: Delivery, error: unknown): Settlement;
  abstract refused(job: J, error: unknown): Ending | undefined;
  dropped(_: J): void {}
  abstract leaseRenewed(job: J, leaseUntil: number): void;

  /** Calls the handler. */
  protected abstract call(job: J, context: HandlerContext): unknown;
  /** What becomes of a job whose handler returned. */
  protected abstract returned(job: J, value: unknown): Ending | Promise<Ending | undefined>;
  /** Those who listen are told. */
  protected abstract acked(job: J): void;
  protected abstract retried(job: J, error: unknown, delayMs: number): void;
  protected abstract failed(job: J, error: unknown, reason: FailureReason): void;
  protected abstract lost(job: J): void;
  protected abstract report(error: unknown): void;

  handle(job: J, context: HandlerContext): unknown {
    job.observed = channels.observeRun(this.queue, job.delivery);
    if (job.observed === undefined) return this.call(job, context);
    return channels.runObserved(job.observed, () => this.call(job, context));
  }

  async conclude(job: J, result: Result): Promise<Ending | undefined> {
    this.runEnded(job, result);
    return this.endingOf(job, result);
  }

  protected runEnded({ observed }: J, result: Result): void {
    if (observed !== undefined) channels.runEnded(observed, result);
  }

  protected endingOf(job: J, result: Result): Ending | Promise<Ending | undefined> | undefined {
    const { attempt } = job.delivery;
    switch (result.kind) {
      case "returned":
        return this.returned(job, result.value);
      case "threw":
        return { settlement: this.policy.threw(attempt, result.error), error: result.error };
      case "timed out":
        return { settlement: this.policy.timedOut(attempt, result.error), error: result.error };
      case "interrupted":
        return { settlement: { event: "release" }, error: undefined };
      case "lease lost":
      case "abandoned":
        return undefined;
    }
  }

  concluded(job: J, { settlement, error }: Ending, state: JobState): void {
    if (settlement.event === "ack") this.acked(job);
    else if (state === "failed") this.failed(job, error, channels.reasonOf(settlement));
    else if (settlement.event === "nack") this.retried(job, error, settlement.delayMs);
  }

  settled(delivery: Delivery, settlement: Settlement, state: JobState): void {
    channels.settled(this.queue, delivery, settlement, state);
  }

  leaseLost(job: J): void {
    channels.leaseLost(this.queue, job.delivery);
    this.lost(job);
  }

  troubled(error: unknown): void {
    channels.troubled(this.queue, error);
    this.report(error);
  }
}
