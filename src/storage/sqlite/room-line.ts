import { BATCH_BYTES } from "./claims.ts";
import type { LimitedPutStep } from "./limited-put.ts";

/** Places of those who left are given up when there are so many, and more than of those who wait. */
const MOST_LEFT = 1000;

/**
 * The puts that wait for room in one queue under one limit. To take from the front, to let anybody leave, and to find
 * out that nobody's time is up costs the same however many wait.
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
  /** How many wait. */
  size = 0;
  /** In their order, among them some that left. */
  #puts: LimitedPutStep[] = [];
  /** Nobody before this place waits. */
  #start = 0;
  /** Those in the batch under way, and those whom the lock kept out of an earlier one. */
  #tried: readonly LimitedPutStep[] = [];
  #locked: readonly LimitedPutStep[] = [];

  constructor(queue: string, limit: number) {
    this.queue = queue;
    this.limit = limit;
  }

  get first(): LimitedPutStep | undefined {
    while (this.#start < this.#puts.length && !this.#puts[this.#start]?.waiting) this.#start++;
    return this.#puts[this.#start];
  }

  add(put: LimitedPutStep): void {
    this.#puts.push(put);
    this.size++;
    this.nextEnd = Math.min(this.nextEnd, put.endsBy);
  }

  /** One of them no longer waits; it may have held up the others. */
  left(): void {
    this.size--;
    this.check = true;
    if (this.#puts.length > Math.max(MOST_LEFT, 2 * this.size)) {
      this.#puts = this.waiting();
      this.#start = 0;
    }
  }

  waiting(): LimitedPutStep[] {
    return this.#puts.filter(({ waiting }) => waiting);
  }

  hold(put: LimitedPutStep): void {
    if (this.holding === undefined || put.number < this.holding.number) this.holding = put;
  }

  /** What held it up may be gone when a transaction is repeated. */
  release(put: LimitedPutStep): void {
    if (this.holding === put) this.holding = undefined;
  }

  /** The first of them for a batch, at most so many. */
  take(most: number): readonly LimitedPutStep[] {
    const taken: LimitedPutStep[] = [];
    let bytes = 0;
    let place = this.first === undefined ? this.#puts.length : this.#start;
    for (; place < this.#puts.length && taken.length < most; place++) {
      const put = this.#puts[place] as LimitedPutStep;
      if (!put.waiting) continue;
      bytes += put.command.bytes;
      if (bytes > BATCH_BYTES && taken.length > 0) break;
      taken.push(put);
    }
    this.#tried = taken;
    return taken;
  }

  /** After the batch: from `since` on runs the patience of those whom the lock kept out, and no longer that of others. */
  batchEnded(locked: ReadonlySet<unknown>, since: number): void {
    this.holding = undefined;
    this.#markLocked(
      this.#tried.filter((put) => locked.has(put)),
      since,
    );
    this.#tried = [];
    this.check = true;
  }

  /** A look showed it. */
  noRoom(): void {
    this.check = false;
    this.#markLocked([], 0);
  }

  #markLocked(puts: readonly LimitedPutStep[], since: number): void {
    for (const put of this.#locked) if (!puts.includes(put)) put.noLongerLocked();
    this.#locked = puts;
    for (const put of puts) {
      put.markLocked(since);
      this.nextEnd = Math.min(this.nextEnd, put.endsBy);
    }
  }

  /** Those whose time is up. */
  ended(now: number): LimitedPutStep[] {
    if (this.nextEnd > now) return [];
    const waiting = this.waiting();
    const later = waiting.map(({ endsBy }) => endsBy).filter((endsBy) => endsBy > now);
    this.nextEnd = later.reduce((next, endsBy) => Math.min(next, endsBy), Number.POSITIVE_INFINITY);
    return waiting.filter(({ endsBy }) => endsBy <= now);
  }
}
