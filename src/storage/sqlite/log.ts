import type { Space } from "./space.ts";

const PAGE_BYTES = 4096;
const CHECKPOINT_PAGES = 4000;
/** How much longer it may get while somebody moves it beside the engine. */
const BESIDE_PAGES = 1000;
/** How many commits may pass before its length is looked at, if its file did not grow. */
const COMMITS_PER_CHECK = 64;
/** A log that grew beyond this, because of readers, is emptied in short attempts, also whenever it grew by a quarter of that. */
export const LONG_LOG_BYTES: number = 64 * 1024 * 1024;
const SHORTEN_INTERVAL_MS = 1000;
/** On a full disk: a shorter log is not worth a checkpoint; a longer one gives its room back. */
const SHORT_PAGES = 64;
const WASTEFUL_BYTES = 2 * CHECKPOINT_PAGES * PAGE_BYTES;

/** Pages in the log, and how many of them are in the database. */
export interface LogState {
  readonly log: number;
  readonly checkpointed: number;
}

export interface LogOptions {
  readonly space: Space;
  /** Runs a checkpoint on the connection that writes; a reader may be in its way, which is no error. */
  readonly checkpoint: (mode: "NOOP" | "PASSIVE" | "TRUNCATE") => LogState;
  /** The size of the log's file. */
  readonly bytes: () => number;
  /** How much the database's file would grow if all of the log were moved into it, in bytes. */
  readonly growth: () => number;
}

/**
 * The write-ahead log of the connection that writes: when it is moved into the database, and by whom. A second
 * connection alone, under a steady writer, would never let it start over; but it may begin, and nearly all of the time
 * that this takes is the disk's. A long reader can hold the log back; then it is emptied when that one has ended.
 */
export class Log {
  readonly #options: LogOptions;
  /** Pages that the last checkpoint had to leave there. */
  heldBack = 0;
  #bytes = 0;
  #commits = 0;
  /** Nothing is moved before the log has so many pages. */
  #moveAt = 0;
  /** Somebody beside the engine was asked to move it. */
  #asked = false;
  /** What somebody beside the engine moved is to be followed by the rest. */
  #isBegun = false;
  #shortenAfter = 0;
  #shortenAbove = LONG_LOG_BYTES;

  constructor(options: LogOptions) {
    this.#options = options;
  }

  /** Something was committed, and the log's file has that size now. */
  committed(bytes: number): void {
    if (bytes > this.#bytes) this.#commits = COMMITS_PER_CHECK;
    this.#bytes = bytes;
    this.#commits++;
  }

  /** Nothing was committed here, and the log's file has that size now. */
  seen(bytes: number): void {
    this.#bytes = bytes;
  }

  /** When to call `tend` even if nothing is committed: a log that is too long must not stay so. */
  get shortenAt(): number {
    return this.#bytes > LONG_LOG_BYTES ? this.#shortenAfter : Number.POSITIVE_INFINITY;
  }

  /** Somebody has moved what there was; the next `tend` moves the rest. */
  begun(): void {
    this.#isBegun = true;
  }

  /** To be called between batches. Returns whether somebody else is to begin, and `begun` to be called after that. */
  tend(now: number): boolean {
    const { space, checkpoint, bytes } = this.#options;
    space.keepUp(this.#bytes, now);
    if (space.short) {
      this.#tendInShortage();
      return false;
    }
    if (now >= this.shortenAt || this.#bytes > this.#shortenAbove) {
      this.#run("TRUNCATE", CHECKPOINT_PAGES);
      this.#bytes = bytes();
      this.#shortenAfter = now + SHORTEN_INTERVAL_MS;
      this.#shortenAbove = Math.max(this.#bytes, 0.75 * LONG_LOG_BYTES) + LONG_LOG_BYTES / 4;
      return false;
    }
    if (this.#isBegun) {
      this.#isBegun = false;
      this.move();
      return false;
    }
    const limit = space.logPages(CHECKPOINT_PAGES, this.#bytes);
    // The file only grows; how much of it is in use is asked for rarely.
    const seldom = limit < CHECKPOINT_PAGES ? 1 : COMMITS_PER_CHECK;
    if (this.#bytes < limit * PAGE_BYTES || this.#commits < seldom) return false;
    this.#commits = 0;
    const { log } = checkpoint("NOOP");
    if (log < Math.max(limit, this.#moveAt)) return false;
    // A log that is longer did not start over although all was moved: readers are in the way, and haste helps.
    if (!this.#asked && limit === CHECKPOINT_PAGES && log < limit + BESIDE_PAGES) {
      this.#asked = true;
      this.#moveAt = log + BESIDE_PAGES;
      return true;
    }
    this.#run("PASSIVE", limit);
    return false;
  }

  /** Moves what is left, as far as readers allow. */
  move(): void {
    this.#run("PASSIVE", CHECKPOINT_PAGES);
  }

  #run(mode: "PASSIVE" | "TRUNCATE", limit: number): void {
    const { log, checkpointed } = this.#options.checkpoint(mode);
    // Both are -1 where somebody else is at it.
    const all = log >= 0 && checkpointed === log;
    this.heldBack = log - checkpointed;
    this.#moveAt = all ? 0 : log + limit;
    this.#asked = !all;
  }

  /**
   * On a full disk the log is moved into the database, and starts over, before it needs room: but only if the database
   * finds the room to grow, since half a checkpoint would take that in vain.
   */
  #tendInShortage(): void {
    const { space, checkpoint, bytes, growth } = this.#options;
    if (!space.takeAlarm() && this.#commits === 0) return;
    this.#commits = 0;
    this.#bytes = bytes();
    if (!space.provides(growth())) return;
    const wasteful = this.#bytes > WASTEFUL_BYTES;
    const due = Math.max(SHORT_PAGES, this.#bytes / PAGE_BYTES / 2);
    const before = checkpoint("NOOP");
    const { log, checkpointed } =
      wasteful || before.log >= due ? checkpoint(wasteful ? "TRUNCATE" : "PASSIVE") : before;
    if (checkpointed === log || (log < due && checkpointed >= 0)) space.eased();
  }
}
