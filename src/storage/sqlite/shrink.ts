import type { Connection } from "./connection.ts";
import type { Step } from "./group-commit.ts";

/** How long after deletions the free pages are counted, and how long slices are apart. */
const LOOK_MS = 10_000;
const PAUSE_MS = 20;
/** Never urgent: what else there is to do comes first. */
const LEAST_WAIT_MS = 5;
/** A slice is made smaller when it took longer than this, and larger when it took less than half of it. */
const SLICE_MS = 2;
const PAGES = { least: 8, first: 32, most: 512 };

/** Fewer free pages (16 MiB) than this are not worth the work; new jobs will need them. */
const WORTHWHILE = 4096;

/**
 * Gives free pages back to the disk, a slice at a time, while the engine has nothing else to do: once more than a
 * quarter of the file is free, until an eighth is. Needs a file that was made, or vacuumed, by this version.
 */
export class Shrinking {
  readonly #connection: Connection;
  /** When there may be something to do. */
  #nextAt = Number.POSITIVE_INFINITY;
  #pages = PAGES.first;
  #underWay = false;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Somebody may have deleted jobs: a sweep of ours, or another process, of which nobody knows what it wrote. */
  noticeDeletions(now: number): void {
    this.#nextAt = Math.min(this.#nextAt, now + LOOK_MS);
  }

  /** How long there is nothing to do for certain. */
  waitMs(now: number): number {
    return Math.max(this.#nextAt - now, LEAST_WAIT_MS);
  }

  /** To be called when there is nothing else to do: the next slice, if it is time for one. */
  steps(now: number): Step[] {
    if (now < this.#nextAt) return [];
    const wanted = this.#isWanted();
    const ends = this.#underWay && !wanted;
    this.#underWay = wanted;
    this.#nextAt = wanted ? now + PAUSE_MS : Number.POSITIVE_INFINITY;
    // The file itself becomes shorter when the log is moved into it.
    if (ends) this.#connection.log.move();
    return wanted ? [this.#slice()] : [];
  }

  #isWanted(): boolean {
    const { total, free, givesBack } = this.#connection.pages();
    if (!givesBack) return false;
    return this.#underWay ? free > Math.max(total / 8, WORTHWHILE / 2) : free > Math.max(total / 4, WORTHWHILE);
  }

  #slice(): Step {
    const connection = this.#connection;
    return {
      fsync: false,
      compound: false,
      execute: () => connection.giveBack(this.#pages),
      succeed: () => {
        if (connection.heldMs > SLICE_MS) this.#pages = Math.max(PAGES.least, this.#pages >> 1);
        else if (connection.heldMs < SLICE_MS / 2) this.#pages = Math.min(PAGES.most, this.#pages * 2);
      },
      // Nobody waits for it; it is tried again after a later commit.
      fail: () => {
        this.#nextAt = Number.POSITIVE_INFINITY;
      },
    };
  }
}
