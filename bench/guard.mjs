// Fails when localqueue became much slower beside the limit of SQLite: npm run bench:guard
import { performance } from "node:perf_hooks";
import { Worker } from "../dist/index.js";
import { assertExact } from "./cost/support/exact.mjs";
import { ratio } from "./cost/support/format.mjs";
import { withLimit } from "./cost/support/limit.mjs";
import { payload, payloadBytes } from "./cost/support/payload.mjs";
import { timeOfLimitedPuts, timeOfPuts } from "./cost/support/put-times.mjs";
import { withNewQueue } from "./cost/support/queue.mjs";
import { median } from "./cost/support/rounds.mjs";

const ROUNDS = 5;
const ATTEMPTS = 3;

async function ownWorker({ lanes, warmUp, jobs }) {
  return await withNewQueue({}, async (queue) => {
    const all = warmUp + jobs;
    const put = await queue.putMany(Array.from({ length: all }, () => payload));
    const delivered = [];
    const worker = new Worker(queue, ({ id }) => void delivered.push(id), { concurrency: lanes });
    let acked = 0;
    let start = 0;
    let took = 0;
    worker.on("job:acked", () => {
      if (++acked === warmUp) start = performance.now();
      if (acked !== all) return;
      took = performance.now() - start;
      void worker.stop();
    });
    await worker.run();
    assertExact(
      put.map(({ id }) => id),
      delivered,
    );
    return took;
  });
}

async function limitOfWorker({ lanes, warmUp, jobs }) {
  return await withLimit({}, (file) => {
    file.put(payloadBytes, warmUp + jobs);
    const turns = (count) => {
      for (let done = 0; done < count; done += lanes) file.turn(lanes, (bytes) => JSON.parse(bytes.toString()));
    };
    turns(warmUp);
    const start = performance.now();
    turns(jobs);
    return performance.now() - start;
  });
}

/** Each bound is about half of what is usual (see bench/README.md): a slide to half fails, a noisy machine does not. */
const CHECKS = [
  {
    what: "put, one after the other",
    own: timeOfPuts,
    limit: timeOfLimitedPuts,
    lanes: 1,
    warmUp: 2_000,
    jobs: 4_000,
    atLeast: 0.27,
  },
  {
    what: "100 puts in flight",
    own: timeOfPuts,
    limit: timeOfLimitedPuts,
    lanes: 100,
    warmUp: 20_000,
    jobs: 30_000,
    atLeast: 0.3,
  },
  {
    what: "worker with 100 slots",
    own: ownWorker,
    limit: limitOfWorker,
    lanes: 100,
    warmUp: 5_000,
    jobs: 15_000,
    atLeast: 0.25,
  },
];

/** The median of the rounds' ratios, the limit's time to one's own. */
async function reached(check) {
  const ratios = [];
  for (let round = 0; round < ROUNDS; round++) {
    const limitFirst = round % 2 === 0 ? await check.limit(check) : undefined;
    const own = await check.own(check);
    ratios.push((limitFirst ?? (await check.limit(check))) / own);
  }
  return median(ratios);
}

for (const check of CHECKS) {
  let best = 0;
  for (let attempt = 0; attempt < ATTEMPTS && best < check.atLeast; attempt++) {
    best = Math.max(best, await reached(check));
  }
  const ok = best >= check.atLeast;
  console.log(
    `${check.what}: ${ratio(best)} of the limit, asked: at least ${check.atLeast}: ${ok ? "ok" : "TOO SLOW"}`,
  );
  if (!ok) process.exitCode = 1;
}
