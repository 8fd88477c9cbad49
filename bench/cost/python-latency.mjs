// How long a job is on its way from one language to the other, to somebody who waits for it.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { tellValue } from "./support/figures.mjs";
import { time } from "./support/format.mjs";
import { runPython } from "./support/python.mjs";
import { withNewQueue } from "./support/queue.mjs";
import { sized } from "./support/size.mjs";

const JOBS = sized(120, 10);
const now = () => performance.timeOrigin + performance.now();

await withNewQueue({}, async (queue, directory) => {
  const delays = [];
  const receive = async () => {
    while (delays.length < JOBS) {
      const job = await queue.get();
      delays.push(now() - job.data.at);
      await job.ack();
    }
  };
  const received = receive();
  for await (const _ of runPython("python-put-now", directory, JOBS));
  await received;
  tell("put in Python, handed out by get() here", delays);
});

await withNewQueue({}, async (queue, directory) => {
  const delays = [];
  let sending;
  for await (const said of runPython("python-get-now", directory, JOBS)) {
    if (said === "open") sending = send(queue);
    else delays.push(said);
  }
  await sending;
  tell("put here, handed out by get() in Python", delays);
});

async function send(queue) {
  for (let i = 0; i < JOBS; i++) {
    // A wait of Python's looks again after 10 ms, and then ever more rarely.
    await sleep(500 * Math.random());
    await queue.put({ at: now() });
  }
}

function tell(what, delays) {
  delays.sort((a, b) => a - b);
  const at = (share) => delays[Math.floor((delays.length - 1) * share)];
  tellValue(
    `${what}: the median`,
    undefined,
    at(0.5),
    time,
    `${time(at(0.95))} at the 95th percentile, ${time(at(1))} at most`,
  );
}
