import { FIRST, ROUND_MS, WARM_UP_MS } from "./size.mjs";

const MOST = 400_000;
/** Rates differ with the number of jobs, so the number grows in steps. */
const STEP = 8;
const LEAST = 200;

/** How many jobs the next round of a side takes, by the last; a multiple of 4. */
export function jobsFor(memory) {
  const { rate, count } = memory;
  const wanted = rate === undefined ? FIRST : (rate * (WARM_UP_MS + ROUND_MS)) / 1000;
  memory.count = Math.round(Math.max(LEAST, Math.min(wanted, (count ?? FIRST) * STEP, MOST)) / 4) * 4;
  return memory.count;
}
