import { cellTime, elapsedSince } from "./handler-cells.ts";
import type { ConsumerRecord } from "./slot-consumer.ts";
import type { LongestRunning } from "./storage.ts";
import { monotonicMs } from "./thread-clock.ts";

/** The job that a worker of this program has been handling the longest, read off the slots that are watched. */
export function longestRunning(
  consumers: Iterable<Pick<ConsumerRecord, "settings" | "held">>,
  queue: string,
): LongestRunning {
  const now = cellTime(monotonicMs());
  let longest: LongestRunning = { longestRunningJobId: null, longestRunningMs: null };
  for (const { settings, held } of consumers) {
    if (settings.queue !== queue) continue;
    const cells = new Int32Array(settings.cells);
    // The last delivery of a slot is the one that its cell speaks of.
    const latest = new Map(held().map(({ slot, id }) => [slot, id]));
    for (const [slot, id] of latest) {
      const started = Atomics.load(cells, slot);
      if (started <= 0) continue;
      const ms = elapsedSince(started, now);
      if (ms >= (longest.longestRunningMs ?? 0)) longest = { longestRunningJobId: id, longestRunningMs: ms };
    }
  }
  return longest;
}
