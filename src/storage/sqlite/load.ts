import type { JobState } from "../../state.ts";

/** How many jobs of each queue are ready or processing, as the transaction under way sees it. */
export class Load {
  readonly #queues = new Map<string, number>();

  /** The number of jobs; `read` tells it where it is not known yet. */
  of(queue: string, read: () => number): number {
    let jobs = this.#queues.get(queue);
    if (jobs === undefined) {
      jobs = read();
      this.#queues.set(queue, jobs);
    }
    return jobs;
  }

  moved(queue: string, change: number): void {
    if (change === 0 || this.#queues.size === 0) return;
    const jobs = this.#queues.get(queue);
    if (jobs !== undefined) this.#queues.set(queue, jobs + change);
  }

  /** The transaction ended, or a part of it was undone. */
  forget(): void {
    if (this.#queues.size > 0) this.#queues.clear();
  }
}

/** What one job's move adds to the load; without a state it is not, or no longer, in the queue. */
export function loadOf(from: JobState | undefined, to: JobState | undefined): number {
  return Number(takesRoom(to)) - Number(takesRoom(from));
}

function takesRoom(state: JobState | undefined): boolean {
  return state === "ready" || state === "processing";
}
