import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

/** A delay is only seen between two ticks of the monitor: it needs some before and after what is watched. */
const MARGIN_MS = 20;
const MILLISECOND = 1e6;

/** The delays of the event loop, in milliseconds, while `work` runs; each includes the resolution of 1 ms itself. */
export async function delaysDuring(work) {
  const monitor = monitorEventLoopDelay({ resolution: 1 });
  monitor.enable();
  await sleep(MARGIN_MS);
  await work();
  await sleep(MARGIN_MS);
  monitor.disable();
  return { p99: monitor.percentile(99) / MILLISECOND, max: monitor.max / MILLISECOND };
}
