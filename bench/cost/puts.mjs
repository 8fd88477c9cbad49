// What putting costs, one after the other and with many calls under way.
import { tellChecked, tellRatio } from "./support/figures.mjs";
import { perSecond, time } from "./support/format.mjs";
import { timeOfLimitedPuts, timeOfPuts } from "./support/put-times.mjs";
import { alternate } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

/**
 * A queue's first calls start a thread, whose code the engine of JavaScript has yet to compile: for some tenths of a
 * second.
 */
const warmUp = (lanes) => (lanes === 1 ? sized(5_000, 100) : sized(30_000, 200));

function measure(fsync, lanes, jobs) {
  const work = { fsync, lanes, warmUp: warmUp(lanes), jobs };
  return alternate(
    () => timeOfPuts(work),
    () => timeOfLimitedPuts(work),
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
