import { grouped, jobs } from "./wording.ts";

const INTERVAL_MS = 100;
const CLEAR_LINE = "\r\x1b[K";

/** A line on a terminal that says how far something is; nothing where no one watches. */
export class Progress {
  readonly #stream: Pick<NodeJS.WriteStream, "isTTY" | "write">;
  readonly #startedAt = performance.now();
  #shownAt = Number.NEGATIVE_INFINITY;

  constructor(stream: Pick<NodeJS.WriteStream, "isTTY" | "write">) {
    this.#stream = stream;
  }

  /** At most ten times a second, however often it is called. */
  show(count: number): void {
    const now = performance.now();
    if (!this.#stream.isTTY || now - this.#shownAt < INTERVAL_MS) return;
    const rate = Math.round((count * 1000) / Math.max(1, now - this.#startedAt));
    this.#stream.write(`${CLEAR_LINE}${jobs(count)}, ${grouped(rate)}/s`);
    this.#shownAt = now;
  }

  /** Leaves no trace. */
  clear(): void {
    if (this.#shownAt > 0) this.#stream.write(CLEAR_LINE);
    this.#shownAt = Number.NEGATIVE_INFINITY;
  }
}
