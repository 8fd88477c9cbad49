import type { Delivery } from "../storage.ts";
import type { Terms } from "./dequeue.ts";
import { SLICE } from "./statements.ts";
import type { Transitions } from "./transitions.ts";

/** From so many on they are claimed faster together. */
const TOGETHER = 4;
/** What a batch claims together at most. */
const MOST_TOGETHER = 64;

/** Jobs of a queue for the claims of a batch, claimed together for those that want them on the same terms. */
export class Supply {
  readonly #transitions: Transitions;
  readonly #queue: string;
  #rows: Delivery[] = [];
  #together = true;
  #exhausted = 0;

  constructor(transitions: Transitions, queue: string) {
    this.#transitions = transitions;
    this.#queue = queue;
  }

  /** Nothing is claimed that nobody has taken. */
  get isEmpty(): boolean {
    return this.#rows.length === 0;
  }

  /** As many jobs that used up the budget became dead letters as one transaction may. */
  get isExhausted(): boolean {
    return this.#exhausted === SLICE;
  }

  /** The next jobs, `limit` of them unless there are no more; `wanted` will be taken in all, on these terms. */
  take(terms: Terms, limit: number, wanted: number): Delivery[] {
    const rows: Delivery[] = [];
    while (rows.length < limit) {
      if (this.isEmpty) this.#rows = this.#claim(terms, wanted - rows.length);
      if (this.isEmpty) break;
      rows.push(...this.#rows.splice(0, limit - rows.length));
    }
    return rows;
  }

  #claim(terms: Terms, wanted: number): Delivery[] {
    if (this.#together && wanted >= TOGETHER) {
      const rows = this.#transitions.claimSeveral(this.#queue, terms, Math.min(wanted, MOST_TOGETHER));
      if (rows.length > 0) return rows;
      // What is in the way will be in the way again.
      this.#together = false;
    }
    if (terms.budget !== null) {
      this.#exhausted += this.#transitions.exhaust(this.#queue, terms.budget, SLICE - this.#exhausted);
      if (this.isExhausted) return [];
    }
    const row = this.#transitions.claim(this.#queue, terms);
    return row === undefined ? [] : [row];
  }
}
