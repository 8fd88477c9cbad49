// How long it takes to ask a queue how it is, in a file that has been in use for years.
import { performance } from "node:perf_hooks";
import { withDirectory } from "./support/directory.mjs";
import { assertStats } from "./support/exact.mjs";
import { tellChecked, tellValue } from "./support/figures.mjs";
import { fill } from "./support/fill.mjs";
import { number, time } from "./support/format.mjs";
import { withQueue } from "./support/queue.mjs";
import { percentile } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const ACKED = sized(10_000_000, 3_000);
const READY = sized(1_000_000, 1_000);
const CALLS = sized(200, 5);

await withDirectory(async (directory) => {
  await withQueue(directory, {}, (queue) => queue.stats());
  fill(directory, "acked", ACKED);
  fill(directory, "ready", READY);
  await withQueue(directory, {}, async (queue) => {
    for (const [name, ask] of [
      ["stats()", () => queue.stats()],
      ["diagnostics()", () => queue.diagnostics()],
    ]) {
      await ask(); // starts its thread
      const took = [];
      for (let i = 0; i < CALLS; i++) {
        const start = performance.now();
        await ask();
        took.push(performance.now() - start);
      }
      const detail = `with ${number(ACKED)} acked and ${number(READY)} ready jobs; the longest of ${CALLS} took ${time(Math.max(...took))}`;
      tellValue(`${name}: p99`, { atMost: 10 }, percentile(took, 99), time, detail);
    }
    const { oldestAvailableAgeMs } = await queue.diagnostics();
    if (!(oldestAvailableAgeMs > 0)) throw new Error("The oldest ready job has no age.");
    await assertStats(queue, { acked: ACKED, ready: READY });
    tellChecked("the counts are right", "exactly", "and the next job has an age");
  });
});
