/** Random numbers that a seed brings back. */
export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** From 0 up to, but not including, 1. */
  next() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  }

  /** A whole number from 0 up to, but not including, `end`. */
  below(end) {
    return Math.floor(this.next() * end);
  }

  between(first, last) {
    return first + this.below(last - first + 1);
  }

  pick(items) {
    return items[this.below(items.length)];
  }

  chance(probability) {
    return this.next() < probability;
  }

  /** One of the keys, each as likely as its number says. */
  weighted(weights) {
    const entries = Object.entries(weights);
    let left = this.next() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [key, weight] of entries) {
      left -= weight;
      if (left < 0) return key;
    }
    return entries[0][0];
  }
}
