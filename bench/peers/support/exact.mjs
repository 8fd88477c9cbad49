import { setTimeout as sleep } from "node:timers/promises";

const SETTLED_MS = 5_000;

/** What is wrong with the deliveries of the jobs `0` to `put`: not the number, which is checked by what is left. */
export function wrongIn(put, ids) {
  const seen = new Set(ids);
  const faults = [];
  if (seen.size < ids.length) faults.push(`${ids.length - seen.size} deliveries too many`);
  for (const id of seen) {
    if (Number.isInteger(id) && id >= 0 && id < put) continue;
    faults.push(`job ${id} was never put`);
    break;
  }
  return faults;
}

/** The same for what a peer counts as not finished, once it had the time to notice. */
export async function wrongLeft(client, expected) {
  const deadline = Date.now() + SETTLED_MS;
  for (;;) {
    const { left } = await client.ask("left");
    if (left === undefined || left === expected) return [];
    if (Date.now() > deadline) return [`counts ${left} unfinished jobs, not ${expected}`];
    await sleep(20);
  }
}
