import type { EngineCounts } from "../storage.ts";

/**
 * What an engine counts, in memory that its client reads whenever it likes: nobody waits for anybody. It outlives the
 * engine's thread, and a new one counts on.
 */
export type Gauges = Float64Array;

const GAUGE = {
  batches: 0,
  steps: 1,
  largest: 2,
  lockWaits: 3,
  lockWaitMs: 4,
  wakeUps: 5,
  timerWakeUps: 6,
  walHeldBack: 7,
} as const;

/** A lock that took less than this was free, as far as anybody could notice. */
const LOCK_WAIT_MS = 1;

export function newGauges(): Gauges {
  return new Float64Array(new SharedArrayBuffer(Object.keys(GAUGE).length * Float64Array.BYTES_PER_ELEMENT));
}

function add(gauges: Gauges, gauge: number, amount: number): void {
  gauges[gauge] = (gauges[gauge] as number) + amount;
}

/** A batch of `steps` was tried, of which the lock kept out `locked`; the transaction held the lock for `heldMs`. */
export function countBatch(gauges: Gauges, steps: number, locked: number, tookMs: number, heldMs: number): void {
  const waitedMs = locked > 0 ? tookMs : tookMs - heldMs;
  if (waitedMs >= LOCK_WAIT_MS) {
    add(gauges, GAUGE.lockWaits, 1);
    add(gauges, GAUGE.lockWaitMs, waitedMs);
  }
  const done = steps - locked;
  if (done === 0) return;
  add(gauges, GAUGE.batches, 1);
  add(gauges, GAUGE.steps, done);
  if (done > (gauges[GAUGE.largest] as number)) gauges[GAUGE.largest] = done;
}

/** The engine's thread slept, until somebody woke it or its time had come. */
export function countWakeUp(gauges: Gauges, how: "ok" | "not-equal" | "timed-out"): void {
  if (how === "ok") add(gauges, GAUGE.wakeUps, 1);
  else if (how === "timed-out") add(gauges, GAUGE.timerWakeUps, 1);
}

/** Pages of the WAL that a reader kept out of the database, as of the last checkpoint. */
export function noteHeldBack(gauges: Gauges, pages: number): void {
  gauges[GAUGE.walHeldBack] = pages;
}

export function readGauges(gauges: Gauges): EngineCounts {
  const value = (gauge: keyof typeof GAUGE): number => Math.round(gauges[GAUGE[gauge]] as number);
  const [batches, steps] = [value("batches"), value("steps")];
  return {
    groupCommits: batches,
    groupCommitSteps: steps,
    groupCommitMean: batches === 0 ? 0 : Math.round((steps / batches) * 10) / 10,
    groupCommitLargest: value("largest"),
    lockWaits: value("lockWaits"),
    lockWaitMs: value("lockWaitMs"),
    wakeUps: value("wakeUps"),
    timerWakeUps: value("timerWakeUps"),
    walHeldBackPages: value("walHeldBack"),
  };
}
