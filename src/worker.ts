import { ConsumerLoop } from "./consumer-loop.ts";
import { Emitter } from "./emitter.ts";
import { QueueClosedError } from "./errors.ts";
import { type Assignment, type Handler, JobWork, type WorkerEvents } from "./job-work.ts";
import { functionOf, wrongType } from "./options.ts";
import type { SimpleQueue } from "./queue.ts";
import { internalsOf, type QueueInternals } from "./queue-internals.ts";
import {
  type CheckedWorkerOptions,
  consumerSettings,
  type RunOptions,
  readRunOptions,
  readWorkerOptions,
  type WorkerOptions,
} from "./worker-options.ts";

/**
 * Runs a handler for the jobs of a queue, and keeps their leases while it does. The handler returns: the job is done.
 * It throws: the job is delivered again after a while, as often as its budget allows, and then becomes a dead letter.
 */
export class Worker<T = unknown> {
  readonly #queue: QueueInternals<T>;
  readonly #options: CheckedWorkerOptions;
  readonly #events: Emitter<WorkerEvents<T>>;
  readonly #work: JobWork<T>;
  readonly #loops = new Set<ConsumerLoop<Assignment<T>>>();
  #isRunning = false;
  #stopped: Promise<void> | undefined;

  constructor(queue: SimpleQueue<T>, handler: Handler<T>, options?: WorkerOptions) {
    const internals = internalsOf<T>(queue);
    if (internals === undefined) throw wrongType("queue", "a SimpleQueue", queue);
    this.#queue = internals;
    this.#options = readWorkerOptions(options, internals.leaseMs);
    this.#events = new Emitter({ "job:acked": [], "job:retried": [], "job:failed": [], "lease:lost": [], error: [] });
    const checked = functionOf<Handler<T>>()(handler, "handler");
    this.#work = new JobWork(internals, checked, this.#options, this.#events);
  }

  /**
   * Serves the queue until `stop()` or the signal, and resolves once all is settled. Faults of the storage that may
   * pass are waited out (`error` is emitted); rejects with the `StorageError` when it is lost for good, and with
   * `QueueClosedError` after `stop()` or when the queue is closed.
   */
  async run(options?: RunOptions): Promise<void> {
    const { signal } = readRunOptions(options);
    if (this.#isRunning) throw new Error("This worker is running already");
    const stop = (): void => void this.stop();
    this.#isRunning = true;
    signal?.addEventListener("abort", stop);
    try {
      await this.#serve(this.#options.concurrency, (loop) => {
        if (signal?.aborted) stop();
        return loop.run();
      });
    } finally {
      this.#isRunning = false;
      signal?.removeEventListener("abort", stop);
    }
  }

  /**
   * Claims a job if one is ready, runs the handler and settles; resolves to whether there was one. Rejects with the
   * `StorageError` when the job could not be claimed, or not be settled.
   */
  async runOnce(): Promise<boolean> {
    return this.#serve(1, (loop) => loop.runOnce());
  }

  /**
   * Claims nothing more, lets the running handlers finish for `graceMs`, then aborts their signals and waits for
   * another second. A handler that only throws the abort gives its job back uncounted; one that still runs keeps its
   * lease until that expires. Idempotent. Not to be awaited inside a handler, which it waits for.
   */
  stop(): Promise<void> {
    this.#stopped ??= Promise.all(Array.from(this.#loops, (loop) => loop.stop())).then(() => undefined);
    return this.#stopped;
  }

  /** Calls `listener` at each `event`; the function that is returned ends that. What a listener throws harms nobody. */
  on<Name extends keyof WorkerEvents<T>>(
    event: Name,
    listener: (payload: WorkerEvents<T>[Name]) => unknown,
  ): () => void {
    return this.#events.on(event, listener);
  }

  /** The same as `stop()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #serve<Served>(slots: number, serve: (loop: ConsumerLoop<Assignment<T>>) => Promise<Served>): Promise<Served> {
    if (this.#stopped !== undefined) throw new QueueClosedError("This worker was stopped");
    const settings = consumerSettings(this.#options, this.#queue.leaseMs, slots);
    const loop = new ConsumerLoop(this.#queue.storage, settings, this.#work);
    const detach = this.#queue.attach({
      stop: () => loop.stop(),
      settledByHand: (receipt, ...settlement) => this.#work.settledByHand(loop.jobOf(receipt), ...settlement),
    });
    this.#loops.add(loop);
    try {
      return await serve(loop);
    } finally {
      this.#loops.delete(loop);
      detach();
    }
  }
}
