// What putting costs, one after the other and with many calls under way.
import { performance } from "node:perf_hooks";
import { assertStats } from "./support/exact.mjs";
import { tellChecked, tellRatio } from "./support/figures.mjs";
import { perSecond, time } from "./support/format.mjs";
import { withLimit } from "./support/limit.mjs";
import { payload, payloadBytes } from "./support/payload.mjs";
import { inLanes, withNewQueue } from "./support/queue.mjs";
import { alternate } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

/**
 * A queue's first calls start a thread, whose code the engine of JavaScript has yet to compile: for some tenths of a
 * second.
 */
const warmUp = (lanes) => (lanes === 1 ? sized(5_000, 100) : sized(30_000, 200));

/** How long so many puts take, in milliseconds, with so many of them under way at any time. */
function own(fsync, lanes, jobs) {
  return withNewQueue({ fsync }, async (queue) => {
    const put = (count) => {
      let left = count;
      return inLanes(
        lanes,
        () => left-- > 0,
        () => queue.put(payload),
      );
    };
    await put(warmUp(lanes));
    const start = performance.now();
    await put(jobs);
    const took = performance.now() - start;
    await assertStats(queue, { ready: warmUp(lanes) + jobs });
    return took;
  });
}

/** The same, with so many in each transaction. */
function limit(fsync, perTransaction, jobs) {
  return withLimit({ fsync }, (file) => {
    const put = (count) => {
      for (let done = 0; done < count; done += perTransaction) file.put(payloadBytes, perTransaction);
    };
    put(warmUp(perTransaction));
    const start = performance.now();
    put(jobs);
    return performance.now() - start;
  });
}

function measure(fsync, atOnce, jobs) {
  return alternate(
    () => own(fsync, atOnce, jobs),
    () => limit(fsync, atOnce, jobs),
  );
}

const rates = (rounds, jobs) => {
  const rate = (ms) => (jobs / ms) * 1000;
  return rounds.map(({ own, limit }) => ({ own: rate(own), limit: rate(limit) }));
};

const one = sized(10_000, 100);
tellRatio("put, one after the other: time", { atMost: 2.2 }, await measure(false, 1, one), (ms) => time(ms / one));

const many = sized(100_000, 1_000);
tellRatio("100 puts in flight: rate", { atLeast: 0.5 }, rates(await measure(false, 100, many), many), perSecond);

const flushed = sized(100_000, 1_000);
tellRatio(
  "100 puts in flight, fsync: rate",
  { atLeast: 0.5 },
  rates(await measure(true, 100, flushed), flushed),
  perSecond,
);
tellChecked("the file holds what was put", "exactly", "by its counts, after each round");
