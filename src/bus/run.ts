import type { Idleness } from "../consumer-loop.ts";
import type { Consumption } from "./consumption.ts";

/** Longer than an event takes from the handler that emitted it to the one that gets it. */
const SHORTEST_IDLENESS_MS = 20;

/** One run of some subscriptions: they end together. */
export class Run {
  readonly #consumptions: readonly Consumption[];
  readonly #idleness: Idleness | undefined;

  constructor(consumptions: readonly Consumption[], idleTimeoutMs: number | undefined) {
    this.#consumptions = consumptions;
    this.#idleness = idleTimeoutMs === undefined ? undefined : this.#idleFor(idleTimeoutMs);
  }

  /** Rejects with the first fault that ended a subscription for good, once all have ended. */
  async serve(): Promise<void> {
    const faults: unknown[] = [];
    const serving = this.#consumptions.map((consumption) =>
      consumption.run(this.#idleness).catch((fault: unknown) => {
        faults.push(fault);
        void this.stop();
      }),
    );
    await Promise.all(serving);
    if (faults.length > 0) throw faults[0];
  }

  async stop(): Promise<void> {
    await Promise.all(this.#consumptions.map((consumption) => consumption.stop()));
  }

  #idleFor(ms: number): Idleness {
    const afterMs = Math.max(ms, SHORTEST_IDLENESS_MS);
    return {
      leftMs: () => {
        // An event that is handled in one may emit into another, so they are idle together.
        const quietMs = Math.min(...this.#consumptions.map(({ idleMs }) => idleMs));
        // What the last handler emitted is found by whoever has looked since.
        const haveLooked = this.#consumptions.every(({ lookedMs }) => lookedMs <= quietMs);
        const leftMs = Math.max(haveLooked ? 0 : 1, afterMs - quietMs);
        if (leftMs === 0) void this.stop();
        return leftMs;
      },
    };
  }
}
