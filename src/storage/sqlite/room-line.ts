import { BATCH_BYTES } from "./claims.ts";
import type { LimitedPutStep } from "./limited-put.ts";

/** Where the head of the list is moved up to its beginning. */
const LONGEST_GAP = 1000;

/**
 * The puts that wait for room in one queue under one limit. Taking from the front, and finding out that nobody's time
 * is up, costs the same however many wait.
 */
export class RoomLine {
  readonly queue: string;
  readonly limit: number;
  /** There may be room. */
  check = true;
  /** The first that has to wait, as the transaction under way sees it. */
  holding: LimitedPutStep | undefined;
  /** No time is up before. */
  nextEnd: number = Number.POSITIVE_INFINITY;
  #puts: LimitedPutStep[] = [];
  #gap = 0;
  /** Those who found the lock to be somebody else's. */
  #locked: readonly LimitedPutStep[] = [];
  /** How many, from the front, are in the batch under way. */
  #tried = 0;

  constructor(queue: string, limit: number) {
    this.queue = queue;
    this.limit = limit;
  }

  get size(): number {
    return this.#puts.length - this.#gap;
  }

  get first(): LimitedPutStep | undefined {
    return this.#puts[this.#gap];
  }

  push(put: LimitedPutStep): void {
    this.#puts.push(put);
    this.#expect(put);
  }

  #expect({ endsBy }: LimitedPutStep): void {
    this.nextEnd = Math.min(this.nextEnd, endsBy);
  }

  hold(put: LimitedPutStep): void {
    if (this.holding === undefined || put.number < this.holding.number) this.holding = put;
  }

  /** What held it up may be gone when a transaction is repeated. */
  release(put: LimitedPutStep): void {
    if (this.holding === put) this.holding = undefined;
  }

  /** Which of them the lock kept out. From `since` on their patience runs; that of others no longer does. */
  markLocked(puts: readonly LimitedPutStep[], since = 0): void {
    for (const put of this.#locked) if (!puts.includes(put)) put.noLongerLocked();
    this.#locked = puts;
    for (const put of puts) {
      put.markLocked(since);
      this.#expect(put);
    }
  }

  /** The first of them for a batch, at most so many. */
  take(most: number): LimitedPutStep[] {
    const taken: LimitedPutStep[] = [];
    let bytes = 0;
    for (const put of this.#puts.slice(this.#gap, this.#gap + most)) {
      bytes += put.command.bytes;
      if (bytes > BATCH_BYTES && taken.length > 0) break;
      taken.push(put);
    }
    this.#tried = taken.length;
    return taken;
  }

  /** After the batch: those that were answered leave, the others are returned. */
  sweep(): LimitedPutStep[] {
    const end = this.#gap + this.#tried;
    const kept = this.#puts.slice(this.#gap, end).filter(({ waiting }) => waiting);
    this.#tried = 0;
    this.#gap = end - kept.length;
    for (const [index, put] of kept.entries()) this.#puts[this.#gap + index] = put;
    if (this.#gap > LONGEST_GAP && this.#gap > this.size) this.#close();
    return kept;
  }

  /** Takes out whoever is meant. */
  remove(which: (put: LimitedPutStep) => boolean): LimitedPutStep[] {
    this.#close();
    const removed = this.#puts.filter(which);
    if (removed.length > 0) this.#puts = this.#puts.filter((put) => !which(put));
    this.nextEnd = this.#puts.reduce((next, { endsBy }) => Math.min(next, endsBy), Number.POSITIVE_INFINITY);
    return removed;
  }

  #close(): void {
    this.#puts.splice(0, this.#gap);
    this.#gap = 0;
  }
}
