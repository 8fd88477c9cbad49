/**
 * Things that come and go by the thousands, by number. A `Map` or a `Set` would do, were it not for V8: once the table
 * of one has reached the old generation, the tables that replace it, and with them all that ever was in them, are
 * kept until the next major collection. A busy client spent a third of its time collecting that.
 */
export class Slots<T extends object> {
  readonly #items: (T | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#items.length - this.#free.length;
  }

  /** Returns the number of the item, which may have been another's before. */
  add(item: T): number {
    const slot = this.#free.pop() ?? this.#items.length;
    this.#items[slot] = item;
    return slot;
  }

  get(slot: number): T | undefined {
    return this.#items[slot];
  }

  delete(slot: number): void {
    if (this.#items[slot] === undefined) return;
    this.#items[slot] = undefined;
    this.#free.push(slot);
  }

  /** All that are there now, in no particular order. */
  list(): T[] {
    return this.#items.filter((item) => item !== undefined);
  }
}
