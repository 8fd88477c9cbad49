// What a Worker costs beside a loop that claims and acknowledges.
import { performance } from "node:perf_hooks";
import { Worker } from "../../dist/index.js";
import { assertExact, assertStats } from "./support/exact.mjs";
import { tellChecked, tellRatio } from "./support/figures.mjs";
import { number, perSecond } from "./support/format.mjs";
import { withLimit } from "./support/limit.mjs";
import { payload, payloadBytes } from "./support/payload.mjs";
import { withNewQueue } from "./support/queue.mjs";
import { alternate } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const FILL = 1_000;
const WARM_UP = sized(5_000, 100);

/** Jobs a second of a worker whose handler does nothing. */
function own(concurrency, jobs) {
  // The clock starts when the first jobs are acknowledged.
  const all = WARM_UP + jobs;
  return withNewQueue({}, async (queue) => {
    const put = [];
    for (let left = all; left > 0; left -= FILL) {
      const results = await queue.putMany(Array.from({ length: Math.min(left, FILL) }, () => payload));
      put.push(...results.map(({ id }) => id));
    }
    const delivered = [];
    const worker = new Worker(queue, (job) => void delivered.push(job.id), { concurrency });
    let acked = 0;
    let start = 0;
    let end = 0;
    worker.on("job:acked", () => {
      acked++;
      if (acked === WARM_UP) start = performance.now();
      if (acked !== all) return;
      end = performance.now();
      void worker.stop();
    });
    await worker.run();
    assertExact(put, delivered);
    await assertStats(queue, { acked: all });
    return (jobs / (end - start)) * 1000;
  });
}

/** Jobs a second of a loop in which so many acknowledgements and claims share a transaction. */
function limit(perTransaction, jobs) {
  return withLimit({}, (file) => {
    for (let left = WARM_UP + jobs; left > 0; left -= FILL) file.put(payloadBytes, Math.min(left, FILL));
    const read = (bytes) => JSON.parse(bytes.toString());
    const turn = (count) => {
      for (let done = 0; done < count; done += perTransaction) file.turn(perTransaction, read);
    };
    turn(WARM_UP);
    const start = performance.now();
    turn(jobs);
    return (jobs / (performance.now() - start)) * 1000;
  });
}

let delivered = 0;
for (const [concurrency, bound, jobs] of [
  [1, 0.5, sized(40_000, 100)],
  [100, 0.45, sized(50_000, 1_000)],
]) {
  const rounds = await alternate(
    () => own(concurrency, jobs),
    () => limit(concurrency, jobs),
  );
  delivered += (rounds.length + 1) * (WARM_UP + jobs);
  tellRatio(`Worker with concurrency ${concurrency}: rate`, { atLeast: bound }, rounds, perSecond);
}
tellChecked("each job is delivered", "exactly once", `${number(delivered)} jobs, by their ids`);
