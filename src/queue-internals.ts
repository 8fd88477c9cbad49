import type { Job } from "./job.ts";
import type { JobState } from "./state.ts";
import type { Delivery, Settlement, Storage } from "./storage/storage.ts";

/** What a worker needs of its queue, and nobody else should. */
export interface QueueInternals<T> {
  readonly name: string;
  readonly leaseMs: number;
  readonly storage: Storage;
  /** Decodes; throws, or rejects, if that is not possible. */
  open(delivery: Delivery): Job<T> | Promise<Job<T>>;
  /** What becomes of a delivery that cannot be decoded. */
  unreadable(error: unknown): Settlement;
  /** Has `consumer` stopped before the queue closes, until the function that is returned is called. */
  attach(consumer: AttachedConsumer): () => void;
}

export interface AttachedConsumer {
  stop(): Promise<void>;
  /** Somebody settles the delivery of this receipt by hand; `error` is what was given as the last error. */
  settledByHand(receipt: string, settling: Promise<JobState>, settlement: Settlement, error: unknown): void;
}

const internals = new WeakMap<object, QueueInternals<unknown>>();

export function shareInternals<T>(queue: object, shared: QueueInternals<T>): void {
  internals.set(queue, shared as QueueInternals<unknown>);
}

/** `undefined` for anything but a queue of this copy of the package. */
export function internalsOf<T>(queue: object): QueueInternals<T> | undefined {
  return internals.get(queue) as QueueInternals<T> | undefined;
}
