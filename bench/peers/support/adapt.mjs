import { ROUND_MS } from "./size.mjs";

const FIRST = 240;
/** Rates differ with the number of jobs, so the number grows in steps. */
const STEP = 6;
const MOST = 300_000;

/** How many jobs the next round of a side takes, by the last; a multiple of 4. */
export function jobsFor(memory) {
  const { rate, count } = memory;
  const wanted = rate === undefined ? FIRST : Math.min((rate * ROUND_MS) / 1000, (count ?? FIRST) * STEP, MOST);
  memory.count = Math.max(80, Math.round(wanted / 4) * 4);
  return memory.count;
}
