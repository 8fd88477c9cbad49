// What a put costs in a queue with `maxPendingJobs`, beside one without, in a file with many jobs.
import { performance } from "node:perf_hooks";
import { withDirectory } from "./support/directory.mjs";
import { assertStats } from "./support/exact.mjs";
import { tellChecked, tellRatio } from "./support/figures.mjs";
import { fill } from "./support/fill.mjs";
import { number, time } from "./support/format.mjs";
import { payload } from "./support/payload.mjs";
import { inLanes, withQueue } from "./support/queue.mjs";
import { alternate } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const READY = sized(1_000_000, 2_000);
const MAX_PENDING_JOBS = 1_000_000_000;

/** How long a put takes on average, in milliseconds, with so many of them under way at any time. */
async function timePuts(queue, lanes, jobs) {
  let left = jobs;
  const start = performance.now();
  await inLanes(
    lanes,
    () => left-- > 0,
    () => queue.put(payload),
  );
  return (performance.now() - start) / jobs;
}

await withDirectory(async (directory) => {
  await withQueue(directory, {}, (queue) => queue.stats());
  fill(directory, "ready", READY);
  let ready = READY;
  await withQueue(directory, { maxPendingJobs: MAX_PENDING_JOBS }, (limited) =>
    withQueue(directory, {}, async (unlimited) => {
      const measure = async (what, lanes, jobs) => {
        const rounds = await alternate(
          () => timePuts(limited, lanes, jobs),
          () => timePuts(unlimited, lanes, jobs),
        );
        ready += 2 * (rounds.length + 1) * jobs;
        tellRatio(`${what} with a limit: time`, { atMost: 1.2 }, rounds, time, "without");
      };
      await measure("put, one after the other,", 1, sized(10_000, 100));
      await measure("100 puts in flight", 100, sized(50_000, 1_000));
      await assertStats(limited, { ready });
    }),
  );
  tellChecked("the counts are right", "exactly", `after all puts, with ${number(READY)} jobs before them`);
});
