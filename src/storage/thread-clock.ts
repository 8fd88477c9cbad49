import { monotonicNow, timeOrigin } from "../timers.ts";

/** How far this thread's clock is behind the one that it was set by. */
let behindMs = 0;

/** The same clock in all threads of a process, in whole milliseconds. */
export function monotonicMs(): number {
  return Math.floor(monotonicNow() + behindMs);
}

/** What a thread needs to set its clock by another's. */
export interface ClockReading {
  readonly origin: number;
  readonly wall: number;
  readonly monotonic: number;
}

export function readClock(): ClockReading {
  return { origin: timeOrigin(), wall: Date.now(), monotonic: monotonicNow() };
}

/**
 * To be called as soon as the thread runs. Node has one clock for all threads; Bun and Deno start a new one in each. The
 * wall clock, which may be set at any time, tells how long it took since `reading`, and nothing more.
 */
export function setClockBy({ origin, wall, monotonic }: ClockReading): void {
  if (origin !== timeOrigin()) behindMs = monotonic + (Date.now() - wall) - monotonicNow();
}
