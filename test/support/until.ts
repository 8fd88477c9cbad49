import { setTimeout as sleep } from "node:timers/promises";

/** Resolves as soon as `condition` holds (to what it gives, if not a boolean); rejects when that takes too long. */
export async function until<T>(condition: () => T | Promise<T>, timeoutMs = 10_000): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (performance.now() > deadline) throw new Error(`Not within ${timeoutMs} ms: ${condition}`);
    await sleep(5);
  }
}
