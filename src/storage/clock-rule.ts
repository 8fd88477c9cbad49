/** A clock that goes back by less than this is not worth a repair; a repair then leaves nothing in the future. */
const TOLERANCE_MS = 1000;
/** After so long without a look, others may have written what is in the future now, and this client cannot tell. */
const UNSEEN_MS = 2000;

/** Whether the clock that everything is stored by was set back, as far as its readings show. */
export class ClockRule {
  /** The latest that was seen on that clock, or that somebody has written. */
  #latest = Number.NEGATIVE_INFINITY;
  /** What it showed at the last look, and when that was by the monotonic clock. */
  #seen = Number.NEGATIVE_INFINITY;
  #seenAt = Number.NEGATIVE_INFINITY;

  get latest(): number {
    return this.#latest;
  }

  /** Whether the last look is so long ago that it matters what others have written. */
  isUnseen(monotonic: number): boolean {
    return monotonic - this.#seenAt >= UNSEEN_MS;
  }

  /** Somebody has written then. */
  written(at: number): void {
    this.#latest = Math.max(this.#latest, at);
  }

  /** The clock shows `now`; returns whether it was set back since the last look, or since somebody has written. */
  look(now: number, monotonic: number): boolean {
    // The second, because others may have written since, just before the clock was set back.
    const wentBack = now < this.#latest - TOLERANCE_MS || now - this.#seen < monotonic - this.#seenAt - TOLERANCE_MS;
    this.#seen = now;
    this.#seenAt = monotonic;
    this.#latest = wentBack ? now : Math.max(this.#latest, now);
    return wentBack;
  }

  /** The repair failed: it is begun anew at the next look. */
  distrust(): void {
    this.#latest = Number.POSITIVE_INFINITY;
  }
}
