// How long it takes from a put in one process to the start of the handler in another.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { assertExact, assertStats } from "./support/exact.mjs";
import { tellChecked, tellValue } from "./support/figures.mjs";
import { number, time } from "./support/format.mjs";
import { withLimit } from "./support/limit.mjs";
import { payload, payloadBytes } from "./support/payload.mjs";
import { Program } from "./support/program.mjs";
import { withNewQueue } from "./support/queue.mjs";
import { percentile } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const PUTS = sized(1_500, 30);
/** Opening the file and compiling the code are in nobody's figures. */
const WARM_UP = sized(5_000, 5);
const NANOSECONDS = 1e6;
const DETAIL = `over ${number(PUTS)} puts, 5 to 25 ms apart`;

/** Puts with pauses; `settled` resolves when all that was put before is worked off. */
async function putWithPauses(put, settled) {
  const times = [];
  for (let i = 0; i < WARM_UP + PUTS; i++) {
    if (i === WARM_UP) await settled();
    if (i >= WARM_UP) await sleep(5 + Math.random() * 20);
    const start = performance.now();
    // The same clock in all processes of the machine, unlike that of `performance`.
    const at = process.hrtime.bigint();
    const id = await put();
    times.push({ id, at, took: performance.now() - start });
  }
  return times;
}

/** Milliseconds from each counted put to its start. */
const latencies = (put, startOf) => put.slice(WARM_UP).map((it) => Number(startOf(it) - it.at) / NANOSECONDS);

const tookOf = (put) => put.slice(WARM_UP).map(({ took }) => took);

await withNewQueue({}, async (queue, directory) => {
  const worker = new Program("latency-worker", { directory, jobs: WARM_UP + PUTS });
  await worker.hear();
  const put = await putWithPauses(
    async () => (await queue.put(payload)).id,
    async () => {
      while ((await queue.stats()).acked < WARM_UP) await sleep(10);
    },
  );
  const started = await worker.hear();
  await worker.dismiss();
  assertExact(
    put.map(({ id }) => id),
    started.map(({ id }) => id),
  );
  await assertStats(queue, { acked: put.length });

  const startOf = new Map(started.map(({ id, at }) => [id, at]));
  const waited = latencies(put, ({ id }) => startOf.get(id));
  tellValue("put to handler across processes: p50", { atMost: 1 }, percentile(waited, 50), time, DETAIL);
  for (const percent of [90, 99]) {
    tellValue(`put to handler across processes: p${percent}`, undefined, percentile(waited, percent), time, DETAIL);
  }
  const resolved = percentile(tookOf(put), 50);
  tellValue("put itself, meanwhile: p50", undefined, resolved, time, "from the call to its promise's resolution");
  tellChecked("each job is delivered", "exactly once", `${number(put.length)} jobs, by their ids`);
});

await withLimit({}, async (limit, directory) => {
  const consumer = new Program("latency-limit", { directory, warmUp: WARM_UP, jobs: WARM_UP + PUTS });
  await consumer.hear();
  const put = await putWithPauses(
    () => limit.put(payloadBytes),
    () => consumer.hear(),
  );
  // On one thread each job is taken in its turn, and none without being asked for.
  const started = await consumer.hear();
  await consumer.dismiss();
  const waited = latencies(
    put.map((it, index) => ({ ...it, index })),
    ({ index }) => started[index].at,
  );
  const how = "SQLite on the event loops of both, which a watch on the directory wakes";
  tellValue("the same at the limit: p50", undefined, percentile(waited, 50), time, how);
  tellValue("the same at the limit: p99", undefined, percentile(waited, 99), time, how);
  tellValue("put itself at the limit: p50", undefined, percentile(tookOf(put), 50), time, "the call, which blocks");
});
