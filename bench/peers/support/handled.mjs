import { setTimeout as sleep } from "node:timers/promises";
import { ROUND_MS, WARM_UP_MS } from "./size.mjs";

const STUCK_MS = 30_000;

/** For a peer that is slower than it was thought to be, a round ends before all jobs are handled. */
const LONGEST_MS = 2 * (WARM_UP_MS + ROUND_MS);

/** Waits until the workers have handled so many jobs between them, or for the time that a round may take. */
export function whileRound(clients, total) {
  return untilHandled(clients, total, LONGEST_MS);
}

/** Waits until the workers have handled so many jobs between them. */
export async function untilHandled(clients, total, forMs = Number.POSITIVE_INFINITY) {
  const end = Date.now() + forMs;
  let before = -1;
  let changedAt = Date.now();
  for (;;) {
    const handled = clients.reduce((sum, client) => sum + client.handled, 0);
    if (handled >= total || Date.now() > end) return;
    if (handled !== before) {
      before = handled;
      changedAt = Date.now();
    }
    if (Date.now() - changedAt > STUCK_MS) throw new Error(`stuck after ${handled} of ${total} jobs`);
    for (const client of clients) client.assertRuns();
    await sleep(5);
  }
}

/** Stops the workers; gives what each of them handled. */
export async function stopAll(clients) {
  return await Promise.all(clients.map((client) => client.ask("stop")));
}

/** Jobs a second to the last one, after the workers became warm. */
export function rateOf(times) {
  const sorted = [...times].sort((a, b) => a - b);
  const [first, last] = [sorted[0], sorted.at(-1)];
  const warm = first + Math.min(WARM_UP_MS, (last - first) / 2);
  const from = sorted.findIndex((at) => at >= warm);
  return ((sorted.length - 1 - from) / (last - sorted[from])) * 1000;
}
