// What happens when a Python client opens a large file of ours for the first time, and builds its index.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { withDirectory } from "./support/directory.mjs";
import { tellValue } from "./support/figures.mjs";
import { fill } from "./support/fill.mjs";
import { number, time } from "./support/format.mjs";
import { payload } from "./support/payload.mjs";
import { runPython } from "./support/python.mjs";
import { withQueue } from "./support/queue.mjs";
import { sized } from "./support/size.mjs";

const SIZES = [sized(1_000_000, 1_000), sized(3_000_000, 3_000)];
const PAUSE_MS = 5;

for (const jobs of SIZES) {
  await withDirectory(async (directory) => {
    await withQueue(directory, {}, (queue) => queue.stats());
    fill(directory, "ready", jobs);
    await withQueue(directory, {}, async (queue) => {
      const before = await putting(queue, () => sleep(sized(1000, 50)));
      const first = await putting(queue, () => open(directory));
      const second = await putting(queue, () => open(directory));
      const after = `${time(first.longestMs)} was the longest put here meanwhile, of ${first.puts}, ${first.failed} of them refused; ${time(before.longestMs)} the second before`;
      tellValue(
        `Python opens ${number(jobs)} ready jobs for the first time`,
        undefined,
        first.value.openMs,
        time,
        after,
      );
      tellValue(
        `and for the second time`,
        undefined,
        second.value.openMs,
        time,
        `${time(second.longestMs)} was the longest put here, ${second.failed} refused; Python's claim took ${time(second.value.claimMs)}`,
      );
    });
  });
}

async function open(directory) {
  for await (const answer of runPython("python-open", directory)) return answer;
}

/** Puts one job after the other while `work` is being done. */
async function putting(queue, work) {
  let working = true;
  const result = { puts: 0, failed: 0, longestMs: 0 };
  const put = async () => {
    while (working) {
      const start = performance.now();
      await queue.put(payload).catch(() => result.failed++);
      result.longestMs = Math.max(result.longestMs, performance.now() - start);
      result.puts++;
      await sleep(PAUSE_MS);
    }
  };
  const puts = put();
  const value = await work();
  // Our first write after Python's makes the counts anew.
  await sleep(sized(1000, 50));
  working = false;
  await puts;
  return { ...result, value };
}
