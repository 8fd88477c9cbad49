import { setTimeout as sleep } from "node:timers/promises";

const STUCK_MS = 30_000;

/** Waits until the workers have handled so many jobs between them. */
export async function untilHandled(clients, total) {
  let before = -1;
  let changedAt = Date.now();
  for (;;) {
    const handled = clients.reduce((sum, client) => sum + client.handled, 0);
    if (handled >= total) return;
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

/** Jobs a second, from when a part of them was handled to the last one. */
export function rateOf(times, warmUp = 0.2) {
  const sorted = [...times].sort((a, b) => a - b);
  const from = Math.floor(sorted.length * warmUp);
  return ((sorted.length - 1 - from) / (sorted.at(-1) - sorted[from])) * 1000;
}
