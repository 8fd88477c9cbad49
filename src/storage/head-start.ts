/** Longer than it takes another process to wake up and claim. */
export const HEAD_START_MS = 100;

/**
 * The moments at which jobs are due that this client has left to others. All who wait for a job would claim it then, and
 * this client would often be the first again: the others get a head start.
 */
export class HeadStarts {
  readonly #byQueue = new Map<string, Set<number>>();

  /** A job was left to others, and is due again then. */
  give(queue: string, dueAt: number): void {
    const dues = this.#byQueue.get(queue) ?? new Set();
    this.#byQueue.set(queue, dues.add(dueAt));
  }

  /** When to look for what is due then. */
  dueHere(queue: string, dueAt: number): number {
    const dues = this.#byQueue.get(queue);
    if (dues === undefined) return dueAt;
    // They are due in turn, so the earlier ones are done with.
    for (const due of dues) if (due < dueAt) dues.delete(due);
    if (dues.size === 0) this.#byQueue.delete(queue);
    return dues.has(dueAt) ? dueAt + HEAD_START_MS : dueAt;
  }

  /** The moments at which others are to go first. */
  of(queue: string): readonly number[] {
    return [...(this.#byQueue.get(queue) ?? [])];
  }

  /** Those whose head start is over, at that time, are done with. */
  forget(queue: string, now: number): void {
    const dues = this.#byQueue.get(queue);
    if (dues === undefined) return;
    for (const due of dues) if (due + HEAD_START_MS <= now) dues.delete(due);
    if (dues.size === 0) this.#byQueue.delete(queue);
  }
}
