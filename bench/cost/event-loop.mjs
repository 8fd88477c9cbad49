// How long the event loop is kept from its other work by puts, with the database free and with it locked by others.
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { jsonSerializer } from "../../dist/index.js";
import { delaysDuring } from "./support/delays.mjs";
import { assertStats } from "./support/exact.mjs";
import { tellChecked, tellValue } from "./support/figures.mjs";
import { number, time } from "./support/format.mjs";
import { payload } from "./support/payload.mjs";
import { Program } from "./support/program.mjs";
import { inLanes, withNewQueue } from "./support/queue.mjs";
import { alternate, median, pick } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const LANES = 100;
const RUN_MS = sized(2_000, 200);
const LOCKED_MS = sized(5_000, 300);
/** How often one more call comes while the lanes wait for the lock. */
const ARRIVAL_MS = 10;

let puts = 0;

/** Calls `call` in 100 lanes, and now and then beside them, for as long as `work` takes; the delays meanwhile. */
async function under(call, work) {
  let more = true;
  const lanes = inLanes(LANES, () => more, call);
  const calls = [lanes];
  const arrivals = setInterval(() => calls.push(call()), ARRIVAL_MS);
  try {
    return await delaysDuring(work);
  } finally {
    more = false;
    clearInterval(arrivals);
    await Promise.all(calls);
  }
}

function own(work) {
  return withNewQueue({}, async (queue, directory) => {
    let done = 0;
    const put = async () => {
      await queue.put(payload);
      done++;
    };
    const delays = await under(put, () => work(directory));
    await assertStats(queue, { ready: done });
    puts += done;
    return delays;
  });
}

/** The same load without a queue: encodes the same payload, and waits for the event loop's next turn. */
function withoutQueue(work) {
  const encode = async () => {
    jsonSerializer.encode(payload);
    await turn();
  };
  return under(encode, work);
}

/** Another process takes the lock while the puts are coming, and gives it back. */
async function lockedOut(directory) {
  const holder = new Program("hold-lock", { directory, forMs: LOCKED_MS });
  await holder.hear();
  await holder.hear();
  await holder.dismiss();
}

function tellDelays(name, rounds) {
  const p99 = pick(rounds, "p99");
  const side = (which) => time(median(p99.map((round) => round[which])));
  const added = median(p99.map(({ own, limit }) => own - limit));
  const detail = `${side("own")}, and ${side("limit")} without the queue`;
  tellValue(`event-loop delay, ${name}: added to the p99`, { atMost: 10 }, added, time, detail);
  const max = pick(rounds, "max");
  const longest = (which) => Math.max(...max.map((round) => round[which]));
  const without = `of all rounds; without the queue ${time(longest("limit"))}`;
  tellValue(`event-loop delay, ${name}: longest`, undefined, longest("own"), time, without);
}

tellDelays(
  "100 puts in flight",
  await alternate(
    () => own(() => sleep(RUN_MS)),
    () => withoutQueue(() => sleep(RUN_MS)),
  ),
);
tellDelays(
  `locked out for ${time(LOCKED_MS)}`,
  await alternate(
    () => own(lockedOut),
    () => withoutQueue(() => sleep(LOCKED_MS)),
  ),
);
tellChecked("the file holds what was put", "exactly", `${number(puts)} puts, by the counts`);
