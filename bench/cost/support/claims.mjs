import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { payload } from "./payload.mjs";

const BATCH = 200;
const REPORT_MS = 100;

/** Claims job after job while `more()`, as a program does that has a little to do in between; tells `report` the delays. */
export async function claimInTurns(queue, more, report) {
  let delays = [];
  let reportedAt = performance.now();
  while (more()) {
    const { ready } = await queue.stats();
    if (ready < BATCH / 2) await queue.putMany(Array(BATCH).fill(payload));
    const start = performance.now();
    const job = await queue.get({ timeoutMs: 10_000 });
    const now = performance.now();
    delays.push(now - start);
    await job.ack();
    if (now - reportedAt > REPORT_MS) {
      report(delays);
      delays = [];
      reportedAt = now;
    }
    await sleep(Math.random() * 4);
  }
  report(delays);
}
