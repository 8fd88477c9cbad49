import * as channels from "./channels.ts";
import type { Ending, Work } from "./consumer-loop.ts";
import type { Emitter } from "./emitter.ts";
import { PayloadError } from "./errors.ts";
import type { HandlerContext, Result } from "./handler-run.ts";
import { ClaimedJob, type Job } from "./job.ts";
import { finite, LONGEST_DELAY_MS } from "./options.ts";
import type { QueueInternals } from "./queue-internals.ts";
import { delayAfter, isReject, namedCategory, requestedDelay } from "./retry.ts";
import type { FailureReason, JobState } from "./state.ts";
import type { Delivery, Settlement } from "./storage/storage.ts";
import { describeThrown } from "./thrown.ts";
import { warn } from "./warning.ts";
import { type CheckedWorkerOptions, defaultRetry, type ErrorClass } from "./worker-options.ts";

/** Does one job. Returning acknowledges it; throwing has it delivered again, or makes it a dead letter. */
export type Handler<T> = (job: Job<T>, context: HandlerContext) => unknown;

/** What a worker tells those who listen. */
export interface WorkerEvents<T> {
  /** The job is done. */
  "job:acked": { readonly job: Job<T> };
  /** The job will be delivered again, `delayMs` from now. */
  "job:retried": { readonly job: Job<T>; readonly error: unknown; readonly delayMs: number };
  /** The job became a dead letter. */
  "job:failed": { readonly job: Job<T>; readonly error: unknown; readonly reason: FailureReason };
  /** The lease ended before the job could be settled: somebody else may have it, and the handler's result is dropped. */
  "lease:lost": { readonly job: Job<T> };
  /** What belongs to no job: a fault of the storage that is being waited out, a payload that cannot be decoded, … */
  error: { readonly error: unknown };
}

/** A settlement that the handler made itself; the state is `undefined` if it was not accepted. */
interface ByHand {
  readonly ending: Ending;
  readonly state: Promise<JobState | undefined>;
}

/** A job, and what its handler did about it itself. */
export interface Assignment<T> {
  readonly delivery: Delivery;
  readonly job: Job<T>;
  readonly byHand: ByHand[];
  /** Set if somebody listened when the handler was called. */
  observed: channels.ObservedRun | undefined;
}

const ACKED: Ending = { settlement: { event: "ack" }, error: undefined };
const usableDelay = finite(0, LONGEST_DELAY_MS);

/** What a worker does with the jobs of its queue. */
export class JobWork<T> implements Work<Assignment<T>> {
  readonly #queue: QueueInternals<T>;
  readonly #handler: Handler<T>;
  readonly #options: CheckedWorkerOptions;
  readonly #events: Emitter<WorkerEvents<T>>;
  #warned = false;

  constructor(
    queue: QueueInternals<T>,
    handler: Handler<T>,
    options: CheckedWorkerOptions,
    events: Emitter<WorkerEvents<T>>,
  ) {
    this.#queue = queue;
    this.#handler = handler;
    this.#options = options;
    this.#events = events;
  }

  open(delivery: Delivery): Assignment<T> | Promise<Assignment<T>> {
    const opened = this.#queue.open(delivery);
    return opened instanceof Promise ? opened.then((job) => assign(delivery, job)) : assign(delivery, opened);
  }

  unreadable({ id }: Delivery, error: unknown): Settlement {
    const settlement = this.#queue.unreadable(error);
    this.#events.emit("error", { error: new PayloadError(`Job ${id} cannot be decoded: it becomes a dead letter`) });
    this.#warnIfUnheard(id, "undecodable_payload");
    return settlement;
  }

  handle(assignment: Assignment<T>, context: HandlerContext): unknown {
    const { delivery, job } = assignment;
    assignment.observed = channels.observeRun(this.#queue.name, delivery);
    if (assignment.observed === undefined) return this.#handler(job, context);
    return channels.runObserved(assignment.observed, () => this.#handler(job, context));
  }

  /** The handler, or somebody else, settles the job itself; `undefined` = it is none of those that run here. */
  settledByHand(
    assignment: Assignment<T> | undefined,
    settling: Promise<JobState>,
    settlement: Settlement,
    error: unknown,
  ): void {
    if (assignment === undefined) return;
    const state = settling.catch(() => undefined); // whoever settles has the rejection
    assignment.byHand.push({ ending: { settlement, error }, state });
  }

  async conclude(assignment: Assignment<T>, result: Result): Promise<Ending | undefined> {
    if (assignment.observed !== undefined) channels.runEnded(assignment.observed, result);
    // The handler may have asked for settlements without waiting for them.
    for (const { ending, state: settling } of assignment.byHand) {
      const state = await settling;
      if (state === undefined) continue;
      this.concluded(assignment, ending, state);
      if (result.kind === "threw") this.#events.emit("error", { error: result.error });
      return undefined;
    }
    return this.#endingOf(assignment.job, result);
  }

  #endingOf(job: Job<T>, result: Result): Ending | undefined {
    switch (result.kind) {
      case "returned":
        return ACKED;
      case "threw":
        return { settlement: this.#judge(job, result.error), error: result.error };
      case "timed out":
        return { settlement: this.#retryLater(job, result.error, "handler_timeout"), error: result.error };
      case "interrupted":
        return { settlement: { event: "release" }, error: undefined };
      case "lease lost":
      case "abandoned":
        return undefined;
    }
  }

  concluded({ job }: Assignment<T>, { settlement, error }: Ending, state: JobState): void {
    if (settlement.event === "ack") this.#events.emit("job:acked", { job });
    else if (state === "failed") {
      const reason = channels.reasonOf(settlement);
      this.#events.emit("job:failed", { job, error, reason });
      this.#warnIfUnheard(job.id, reason);
    } else if (settlement.event === "nack") {
      this.#events.emit("job:retried", { job, error, delayMs: settlement.delayMs });
    }
  }

  settled(delivery: Delivery, settlement: Settlement, state: JobState): void {
    channels.settled(this.#queue.name, delivery, settlement, state);
  }

  leaseLost({ job }: Assignment<T>): void {
    channels.leaseLost(this.#queue.name, job);
    this.#events.emit("lease:lost", { job });
  }

  leaseRenewed({ job }: Assignment<T>, leaseUntil: number): void {
    ClaimedJob.leaseMoved(job, leaseUntil);
  }

  troubled(error: unknown): void {
    channels.troubled(this.#queue.name, error);
    this.#events.emit("error", { error });
  }

  #judge(job: Job<T>, error: unknown): Settlement {
    const lastError = describeThrown(error);
    if (isReject(error)) return { event: "fail", lastError, reason: "rejected", category: namedCategory(error) };
    if (this.#options.permanentErrors.some((errorClass) => isInstance(error, errorClass))) {
      return { event: "fail", lastError, reason: "permanent_handler_error", category: undefined };
    }
    return this.#retryLater(job, error, "retries_exhausted");
  }

  #retryLater(job: Job<T>, error: unknown, exhaustedReason: FailureReason): Settlement {
    const delayMs = requestedDelay(error) ?? this.#delayMs(job.attempt, error);
    return { event: "nack", delayMs, lastError: describeThrown(error), exhaustedReason };
  }

  #delayMs(attempt: number, error: unknown): number {
    const { retry } = this.#options;
    if (typeof retry !== "function") return delayAfter(retry, attempt);
    try {
      const delayMs: unknown = retry(attempt, error);
      if (delayMs instanceof Promise) delayMs.catch(() => {}); // it is of no use, whatever comes of it
      return Math.round(usableDelay(delayMs, "what `retry` returned"));
    } catch (fault) {
      this.#events.emit("error", { error: fault });
      return delayAfter(defaultRetry, attempt);
    }
  }

  #warnIfUnheard(id: number, reason: FailureReason): void {
    if (this.#warned || this.#events.has("job:failed") || this.#events.has("error")) return;
    this.#warned = true;
    const what = `Job ${id} of queue "${this.#queue.name}" became a dead letter (${reason})`;
    warn("LOCALQUEUE_UNHEARD_DEAD_LETTER", `${what}, and nobody listens for "job:failed" or "error" of its worker`);
  }
}

function assign<T>(delivery: Delivery, job: Job<T>): Assignment<T> {
  return { delivery, job, byHand: [], observed: undefined };
}

function isInstance(error: unknown, errorClass: ErrorClass): boolean {
  try {
    return error instanceof errorClass;
  } catch {
    return false; // a `Symbol.hasInstance` or a proxy of the user's
  }
}
