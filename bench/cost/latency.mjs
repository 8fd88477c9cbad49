// How long it takes from a put in one process to the start of the handler in another.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { assertExact, assertStats } from "./support/exact.mjs";
import { tellChecked, tellValue } from "./support/figures.mjs";
import { number, time } from "./support/format.mjs";
import { payload } from "./support/payload.mjs";
import { Program } from "./support/program.mjs";
import { withNewQueue } from "./support/queue.mjs";
import { percentile } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const PUTS = sized(1_500, 30);
/** Opening the file and compiling the code are in nobody's figures. */
const WARM_UP = sized(5_000, 5);
const NANOSECONDS = 1e6;

await withNewQueue({}, async (queue, directory) => {
  const worker = new Program("latency-worker", { directory, jobs: WARM_UP + PUTS });
  await worker.hear();
  const put = [];
  for (let i = 0; i < WARM_UP + PUTS; i++) {
    while (i === WARM_UP && (await queue.stats()).acked < WARM_UP) await sleep(10);
    if (i >= WARM_UP) await sleep(5 + Math.random() * 20);
    const start = performance.now();
    // The same clock in all processes of the machine, unlike that of `performance`.
    const at = process.hrtime.bigint();
    const { id } = await queue.put(payload);
    put.push({ id, at, took: performance.now() - start });
  }
  const started = await worker.hear();
  await worker.dismiss();
  assertExact(
    put.map(({ id }) => id),
    started.map(({ id }) => id),
  );
  await assertStats(queue, { acked: put.length });

  const startOf = new Map(started.map(({ id, at }) => [id, at]));
  const counted = put.slice(WARM_UP);
  const latencies = counted.map(({ id, at }) => Number(startOf.get(id) - at) / NANOSECONDS);
  const detail = `over ${number(PUTS)} puts, 5 to 25 ms apart`;
  tellValue("put to handler across processes: p50", { atMost: 1 }, percentile(latencies, 50), time, detail);
  for (const percent of [90, 99]) {
    tellValue(`put to handler across processes: p${percent}`, undefined, percentile(latencies, percent), time, detail);
  }
  const resolved = percentile(
    counted.map(({ took }) => took),
    50,
  );
  tellValue("put itself, meanwhile: p50", undefined, resolved, time, "from the call to its promise's resolution");
  tellChecked("each job is delivered", "exactly once", `${number(put.length)} jobs, by their ids`);
});
