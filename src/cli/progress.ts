import { grouped, jobs, seconds } from "./wording.ts";

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

/** How far something is, and in which of its phases. */
export interface Part {
  readonly phase: string;
  readonly done: number;
  readonly total: number;
}

/** Does something that may take long; a line on a terminal says for how long already, and how far it is. */
export async function whileShown<T>(what: string, work: (tell: (part: Part) => void) => Promise<T>): Promise<T> {
  const { stderr } = process;
  if (!stderr.isTTY) return work(() => {});
  const startedAt = performance.now();
  let state = "";
  const show = (): boolean => stderr.write(`${CLEAR_LINE}${what}: ${state}${seconds(performance.now() - startedAt)}`);
  const timer = setInterval(show, INTERVAL_MS);
  try {
    return await work(({ phase, done, total }) => {
      state = `${phase} ${Math.floor((100 * done) / Math.max(1, total))}%, `;
    });
  } finally {
    clearInterval(timer);
    stderr.write(CLEAR_LINE);
  }
}
