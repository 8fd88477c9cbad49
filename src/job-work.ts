import type { Ending } from "./consumer-loop.ts";
import { ACKED, type Assigned, DeliveryWork } from "./delivery-work.ts";
import type { Emitter } from "./emitter.ts";
import { PayloadError } from "./errors.ts";
import type { HandlerContext, Result } from "./handler-run.ts";
import { ClaimedJob, type Job } from "./job.ts";
import type { QueueInternals } from "./queue-internals.ts";
import type { FailureReason, JobState } from "./state.ts";
import type { Delivery, Settlement } from "./storage/storage.ts";
import { warn } from "./warning.ts";
import type { CheckedWorkerOptions } from "./worker-options.ts";

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
export interface Assignment<T> extends Assigned {
  readonly job: Job<T>;
  readonly byHand: ByHand[];
}

/** What a worker does with the jobs of its queue. */
export class JobWork<T> extends DeliveryWork<Assignment<T>> {
  readonly #queue: QueueInternals<T>;
  readonly #handler: Handler<T>;
  readonly #events: Emitter<WorkerEvents<T>>;
  #warned = false;

  constructor(
    queue: QueueInternals<T>,
    handler: Handler<T>,
    options: CheckedWorkerOptions,
    events: Emitter<WorkerEvents<T>>,
  ) {
    super(queue.name, options);
    this.#queue = queue;
    this.#handler = handler;
    this.#events = events;
  }

  override open(delivery: Delivery): Assignment<T> | Promise<Assignment<T>> {
    const opened = this.#queue.open(delivery);
    return opened instanceof Promise ? opened.then((job) => assign(delivery, job)) : assign(delivery, opened);
  }

  override unreadable({ id }: Delivery, error: unknown): Settlement {
    const settlement = this.#queue.unreadable(error);
    this.report(new PayloadError(`Job ${id} cannot be decoded: it becomes a dead letter`));
    this.#warnIfUnheard(id, "undecodable_payload");
    return settlement;
  }

  protected override call({ job }: Assignment<T>, context: HandlerContext): unknown {
    return this.#handler(job, context);
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

  override async conclude(assignment: Assignment<T>, result: Result): Promise<Ending | undefined> {
    this.runEnded(assignment, result);
    // The handler may have asked for settlements without waiting for them.
    for (const { ending, state: settling } of assignment.byHand) {
      const state = await settling;
      if (state === undefined) continue;
      this.concluded(assignment, ending, state);
      if (result.kind === "threw") this.report(result.error);
      return undefined;
    }
    return this.endingOf(assignment, result);
  }

  protected override returned(): Ending {
    return ACKED;
  }

  override refused(): undefined {}

  override leaseRenewed({ job }: Assignment<T>, leaseUntil: number): void {
    ClaimedJob.leaseMoved(job, leaseUntil);
  }

  protected override acked({ job }: Assignment<T>): void {
    this.#events.emit("job:acked", { job });
  }

  protected override retried({ job }: Assignment<T>, error: unknown, delayMs: number): void {
    this.#events.emit("job:retried", { job, error, delayMs });
  }

  protected override failed({ job }: Assignment<T>, error: unknown, reason: FailureReason): void {
    this.#events.emit("job:failed", { job, error, reason });
    this.#warnIfUnheard(job.id, reason);
  }

  protected override lost({ job }: Assignment<T>): void {
    this.#events.emit("lease:lost", { job });
  }

  protected override report(error: unknown): void {
    this.#events.emit("error", { error });
  }

  #warnIfUnheard(id: number, reason: FailureReason): void {
    if (this.#warned || this.#events.has("job:failed") || this.#events.has("error")) return;
    this.#warned = true;
    const what = `Job ${id} of queue "${this.queue}" became a dead letter (${reason})`;
    warn("LOCALQUEUE_UNHEARD_DEAD_LETTER", `${what}, and nobody listens for "job:failed" or "error" of its worker`);
  }
}

function assign<T>(delivery: Delivery, job: Job<T>): Assignment<T> {
  return { delivery, job, byHand: [], observed: undefined };
}
