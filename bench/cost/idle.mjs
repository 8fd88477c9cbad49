// What a worker costs that has nothing to do.
import { assertStats } from "./support/exact.mjs";
import { tellChecked, tellValue } from "./support/figures.mjs";
import { time } from "./support/format.mjs";
import { payload } from "./support/payload.mjs";
import { Program } from "./support/program.mjs";
import { withNewQueue } from "./support/queue.mjs";
import { sized } from "./support/size.mjs";

const SLOTS = 20;
const SETTLE_MS = sized(3_000, 300);
const MEASURE_MS = sized(15_000, 1_000);

await withNewQueue({}, async (queue, directory) => {
  // This process keeps the file open, and is as idle meanwhile.
  const program = new Program("idle-worker", { directory, slots: SLOTS, settleMs: SETTLE_MS, measureMs: MEASURE_MS });
  await program.hear();
  // A worker that has worked before has all its watches and timers.
  await queue.putMany(Array.from({ length: SLOTS }, () => payload));
  const { cpuMs, elapsedMs, wakeUps } = await program.hear();
  await program.dismiss();
  await assertStats(queue, { acked: SLOTS });

  const percent = (value) => `${value.toFixed(2)} %`;
  const detail = `${time(cpuMs)} of one core in ${time(elapsedMs)}, with ${SLOTS} slots`;
  tellValue("CPU of an idle worker", { atMost: 0.5 }, (cpuMs / elapsedMs) * 100, percent, detail);
  const perSecond = (value) => `${value.toFixed(1)}/s`;
  tellValue(
    "it wakes up",
    undefined,
    wakeUps / (elapsedMs / 1000),
    perSecond,
    "voluntary context switches, all threads",
  );
  tellChecked("each job before was delivered", "exactly once", `${SLOTS} jobs, by the counts`);
});
