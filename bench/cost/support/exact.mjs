/** Throws unless what was delivered is what was put: nothing missing, nothing twice, nothing else. */
export function assertExact(put, delivered) {
  const times = new Map(put.map((id) => [id, 0]));
  if (times.size !== put.length) throw new Error("Two jobs got the same id.");
  for (const id of delivered) {
    if (!times.has(id)) throw new Error(`Job ${id} was delivered, but never put.`);
    times.set(id, times.get(id) + 1);
  }
  const wrong = [...times.values()].filter((deliveries) => deliveries !== 1).length;
  if (wrong > 0) throw new Error(`${wrong} of ${put.length} jobs were not delivered exactly once.`);
}

/** Throws unless the queue holds just this, by its own count. */
export async function assertStats(queue, { ready = 0, processing = 0, acked = 0, failed = 0 }) {
  const expected = JSON.stringify({ ready, processing, acked, failed });
  const found = JSON.stringify(await queue.stats());
  if (found !== expected) throw new Error(`The queue holds ${found} where ${expected} was expected.`);
}
