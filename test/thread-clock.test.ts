import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import { monotonicMs, readClock } from "../dist/storage/thread-clock.js";

const program = `const { monotonicMs, setClockBy } = await import(process.env.CLOCK);
  const { parentPort, workerData } = await import("node:worker_threads");
  setClockBy(workerData);
  parentPort.postMessage(monotonicMs());`;

test.each([
  { what: "as the runtime has it", change: {} },
  { what: "where each thread has a clock of its own", change: { origin: -1 } },
])("the clock is the same in a thread that was started later, $what", async ({ change }) => {
  const before = monotonicMs();
  const workerData = { ...readClock(), ...change };
  const CLOCK = new URL("../dist/storage/thread-clock.js", import.meta.url).href;
  const thread = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program)}`), {
    env: { CLOCK },
    workerData,
  });
  const [there] = (await once(thread, "message")) as [number];
  // Each side rounds down, and so does the wall clock.
  expect(there).toBeGreaterThanOrEqual(before - 3);
  expect(there).toBeLessThanOrEqual(monotonicMs() + 3);
  await thread.terminate();
});
