import { availableParallelism } from "node:os";
import { monotonicNow } from "../../timers.ts";

const LONGEST_REST = 64;

/**
 * Falling asleep and being woken takes 20 microseconds and more, about as long as a caller needs for its next call. So
 * a thread that has just been busy looks out for a moment before it sleeps. Where that is in vain, because no call
 * comes or because the caller needs this very processor, it is left out, more and more often.
 */
export class Lookout {
  readonly #ms: number;
  #failures = 0;
  /** How many chances to let pass. */
  #rest = availableParallelism() > 1 ? 0 : Number.POSITIVE_INFINITY;

  /** Looks out for so long. */
  constructor(ms: number) {
    this.#ms = ms;
  }

  /** Whether what `came` tells of came before the look-out was over, or left out. */
  sees(came: () => boolean): boolean {
    if (this.#rest > 0) {
      this.#rest--;
      return false;
    }
    const end = monotonicNow() + this.#ms;
    let seen = came();
    while (!seen && monotonicNow() < end) seen = came();
    this.#failures = seen ? 0 : this.#failures + 1;
    this.#rest = this.#failures < 2 ? 0 : Math.min(2 ** this.#failures, LONGEST_REST);
    return seen;
  }
}
