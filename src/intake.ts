import { unlessAborted, withEither } from "./abort.ts";
import * as channels from "./channels.ts";
import { QueueClosedError } from "./errors.ts";
import { ClaimedJob, type Job, type JobOwner } from "./job.ts";
import { decode, describeDecodeError, type Serializer } from "./serializer.ts";
import type { Delivery, Lease, Settlement, Storage, Wait } from "./storage/storage.ts";
import { countdown } from "./timers.ts";

export interface IntakeOptions<T> {
  readonly name: string;
  readonly leaseMs: number;
  readonly serializer: Serializer<T>;
  readonly storage: Storage;
  /** Whose jobs they are. */
  readonly owner: JobOwner;
  /** Aborted when the queue closes: ends what waits for a job. */
  readonly ending: AbortSignal;
}

/** How jobs come out of a queue: claimed by hand, decoded, or buried. */
export class Intake<T> {
  readonly #options: IntakeOptions<T>;

  constructor(options: IntakeOptions<T>) {
    this.#options = options;
  }

  /** Claims up to `limit` jobs, passing over those that cannot be decoded. Waits only for the first. */
  async take(limit: number, { timeoutMs, signal }: Wait): Promise<Job<T>[]> {
    const left = countdown(timeoutMs);
    const jobs: Job<T>[] = [];
    try {
      for (;;) {
        const wait = { timeoutMs: jobs.length > 0 ? 0 : left(), signal };
        const deliveries = await this.#claim(limit - jobs.length, wait);
        const opened = await Promise.all(deliveries.map((delivery) => this.#openOrBury(delivery, signal)));
        const readable = opened.filter((job) => job !== undefined);
        jobs.push(...readable);
        if (signal?.aborted) throw signal.reason;
        if (jobs.length === limit || readable.length === deliveries.length) return jobs;
      }
    } catch (error) {
      if (signal?.aborted) await Promise.all(jobs.map((job) => this.#tryTo({ event: "release" }, job)));
      else if (jobs.length > 0) return jobs;
      throw error;
    }
  }

  async #claim(limit: number, { timeoutMs, signal }: Wait): Promise<Delivery[]> {
    const request = { limit, leaseMs: this.#options.leaseMs, timeoutMs };
    return withEither(this.#options.ending, signal, (either) =>
      this.#options.storage.claim({ ...request, signal: either }),
    );
  }

  /** A job that cannot be decoded becomes a dead letter, one whose caller went away meanwhile is given back. */
  async #openOrBury(delivery: Delivery, signal: AbortSignal | undefined): Promise<Job<T> | undefined> {
    try {
      const opened = this.open(delivery);
      return opened instanceof Promise ? await unlessAborted(opened, signal) : opened;
    } catch (error) {
      await this.#tryTo(signal?.aborted ? { event: "release" } : this.unreadable(error), delivery);
      return undefined;
    }
  }

  /** Decodes; throws, or rejects, if that is not possible. */
  open(delivery: Delivery): ClaimedJob<T> | Promise<ClaimedJob<T>> {
    channels.claimed(this.#options.name, delivery);
    const decoded = decode(this.#options.serializer, delivery.payload);
    if (!isPromiseLike(decoded)) return new ClaimedJob(delivery, decoded, this.#options.owner);
    return Promise.resolve(decoded).then((data) => new ClaimedJob(delivery, data, this.#options.owner));
  }

  /** What becomes of a delivery that cannot be decoded. */
  unreadable(error: unknown): Settlement {
    const lastError = describeDecodeError(this.#options.serializer, error);
    return { event: "fail", lastError, reason: "undecodable_payload", category: undefined };
  }

  /** One job after the other, until the signal aborts or the queue closes. */
  async *iterate(signal: AbortSignal | undefined): AsyncGenerator<Job<T>, void, undefined> {
    try {
      for (;;) yield* await this.take(1, { signal });
    } catch (error) {
      if (!signal?.aborted && !(error instanceof QueueClosedError)) throw error;
    }
  }

  /** For deliveries that nobody waits for any more: if this fails, their lease runs out. */
  async #tryTo(settlement: Settlement, lease: Lease): Promise<void> {
    try {
      const state = await this.#options.storage.settle(lease, settlement);
      channels.settled(this.#options.name, lease, settlement, state);
    } catch {
      // The next operation that somebody waits for meets the same fault, and reports it.
    }
  }
}

function isPromiseLike<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof (value as PromiseLike<T> | null | undefined)?.then === "function";
}
