import type { AskedJob, Call, Entry, FinalRow, Result } from "./history.ts";

/** A part of an entry that all entries have. */
type Common = "seq" | "process" | "mono" | "wall";
type Unstamped<E> = E extends Entry ? Omit<E, Common> : never;

/** Collects a history in memory: of simulated processes, or made by hand. */
export class Story {
  readonly entries: Entry[] = [];
  readonly #time: () => { readonly mono: number; readonly wall: number };

  constructor(time: () => { readonly mono: number; readonly wall: number }) {
    this.#time = time;
  }

  /** Returns the number to answer to. */
  invoke(process: string, call: Call): number {
    return this.#append(process, { type: "invoke", call });
  }

  ok(process: string, of: number, result: Result): void {
    this.#append(process, { type: "ok", of, result });
  }

  failed(process: string, of: number, type: "fail" | "info", error: string): void {
    this.#append(process, { type, of, error });
  }

  #append(process: string, entry: Unstamped<Entry>): number {
    const seq = this.entries.length + 1;
    this.entries.push({ seq, process, ...this.#time(), ...entry });
    return seq;
  }
}

/** A row of a job that nobody has touched. */
export function rowOf(id: number, job: AskedJob, changes: Partial<FinalRow> = {}): FinalRow {
  const { queue, payload, jobId, key, maxAttempts = 4 } = job;
  return { id, queue, payload, jobId, key, state: "ready", attempts: 0, maxAttempts, ...changes };
}
