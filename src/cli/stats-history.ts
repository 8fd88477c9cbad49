import type { QueueStats } from "../index.ts";

/** The counts of a moment, and what has happened since the moment before; `null` = there was none. */
export interface Tick extends QueueStats {
  readonly at: Date;
  readonly putsPerSecond: number | null;
  readonly acksPerSecond: number | null;
}

/** More than any terminal is wide. */
const KEPT = 500;
const BLOCKS = "▁▂▃▄▅▆▇█";

/** Rates out of counts. Where jobs are purged meanwhile, they are too low, but never below 0. */
export class StatsHistory {
  readonly #ticks: Tick[] = [];
  #lastMs = 0;

  /** `ms` is of a clock that nobody sets. */
  add(stats: QueueStats, at: Date, ms: number): Tick {
    const before = this.#ticks.at(-1);
    const elapsedMs = Math.max(1, ms - this.#lastMs);
    const rate = (count: (one: QueueStats) => number): number | null =>
      before ? Math.max(0, Math.round(((count(stats) - count(before)) * 10_000) / elapsedMs) / 10) : null;
    const tick = {
      at,
      ...stats,
      putsPerSecond: rate(({ ready, processing, acked, failed }) => ready + processing + acked + failed),
      acksPerSecond: rate(({ acked }) => acked),
    };
    this.#lastMs = ms;
    this.#ticks.push(tick);
    if (this.#ticks.length > KEPT) this.#ticks.shift();
    return tick;
  }

  /** The latest values, oldest first. */
  values(of: (tick: Tick) => number | null, count: number): number[] {
    return count < 1 ? [] : this.#ticks.slice(-count).map((tick) => of(tick) ?? 0);
  }
}

/** A block character for each value; the highest value has the highest, and whatever is above 0 can be seen. */
export function graph(values: readonly number[]): string {
  const highest = Math.max(...values);
  return values.map((value) => BLOCKS[value <= 0 ? 0 : Math.ceil((value / highest) * (BLOCKS.length - 1))]).join("");
}
