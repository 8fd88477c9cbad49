import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue, Worker } from "localqueue";
import { afterEach, expect, test, vi } from "vitest";
import { tempLocation } from "./support/location.ts";

const clocks = ["Date", "hrtime", "performance"] as const;
const timers = [
  "setTimeout",
  "clearTimeout",
  "setInterval",
  "clearInterval",
  "setImmediate",
  "clearImmediate",
  "queueMicrotask",
] as const;

afterEach(() => {
  vi.useRealTimers();
});

test("a queue works while a test framework fakes all timers and clocks", async () => {
  const location = tempLocation();
  const realNow = performance.now.bind(performance);
  await using queue = new SimpleQueue<string>(location);
  // All that there is, except process.nextTick, without which Node itself stands still.
  vi.useFakeTimers({ toFake: [...clocks, ...timers] });
  const startedAt = performance.now();
  const waiting = queue.get({ timeoutMs: 10_000 });
  // Long enough for a client whose clock stands still to be taken for stalled.
  for (const endsAt = realNow() + 1_500; realNow() < endsAt; ) await sleep(50);
  expect(performance.now()).toBe(startedAt);
  await queue.put("first");
  const job = await waiting;
  expect(job.data).toBe("first");
  await job.ack();

  await queue.put("second");
  const seen: string[] = [];
  await using worker = new Worker(queue, ({ data }) => void seen.push(data));
  const acked = new Promise<void>((resolve) => worker.on("job:acked", () => resolve()));
  const running = worker.run();
  await acked;
  expect(await queue.getMany(1, { timeoutMs: 100 })).toEqual([]);
  await worker.stop();
  await running;
  expect(seen).toEqual(["second"]);
  expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 2, failed: 0 });
});
