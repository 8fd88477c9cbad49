import { SIGNAL, WATCH } from "./protocol.ts";

/** The net below all wake-ups. */
export const POLL_MS = 1000;
const POLL_WITHOUT_WATCH_MS = 25;
/** A watch that only ever sees our own commits is armed ever more rarely, at most this rarely. */
const LONGEST_REARM_MS = 128;
/** Others are let in for a while after each batch if they have written this recently. */
const CONTENDED_MS = 1000;

/** The other writers of the file: when they were last seen, and how their next commit will be noticed. */
export class Neighbours {
  readonly #signals: Int32Array;
  readonly #askForWatch: () => void;
  #seenAt = Number.NEGATIVE_INFINITY;
  #rearmAt = 0;
  #rearmMs = 0;

  constructor(signals: Int32Array, askForWatch: () => void) {
    this.#signals = signals;
    this.#askForWatch = askForWatch;
  }

  committed(now: number): void {
    this.#seenAt = now;
    this.#rearmMs = 0;
    this.#rearmAt = 0;
  }

  /** Whether they have written just now. */
  active(now: number): boolean {
    return now - this.#seenAt < CONTENDED_MS;
  }

  /**
   * How long to leave the lock free after it was held for `heldMs`. Whoever waits for it polls for it: without a gap a
   * busy engine would starve the others.
   */
  gapMs(now: number, heldMs: number): number {
    if (!this.active(now) || heldMs < 1) return 0;
    return heldMs / 2 + (Math.random() * heldMs) / 2;
  }

  /** How long a commit of theirs may go unnoticed; sees to it that there is a watch which notices at once. */
  pollMs(now: number): number {
    const watch = Atomics.load(this.#signals, SIGNAL.watch);
    if (watch === WATCH.unavailable) return POLL_WITHOUT_WATCH_MS;
    if (watch === WATCH.armed) return POLL_MS;
    if (now < this.#rearmAt) return this.#rearmAt - now;
    this.#rearmMs = Math.min(LONGEST_REARM_MS, Math.max(1, this.#rearmMs * 2));
    this.#rearmAt = now + this.#rearmMs;
    this.#askForWatch();
    return POLL_MS;
  }
}
