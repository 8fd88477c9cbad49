/** Random numbers that a seed brings back. */
export declare class Random {
  constructor(seed: number);
  next(): number;
  below(end: number): number;
  between(first: number, last: number): number;
  pick<T>(items: readonly T[]): T;
  chance(probability: number): boolean;
  weighted<K extends string>(weights: Readonly<Record<K, number>>): K;
}
