import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf } from "../support/inspect.ts";
import { Program } from "../support/program.ts";
import { tempDirectory } from "../support/temp.ts";
import { Layer } from "./support/size.ts";

const BUSY = { code: "BUSY", outcome: "failed" };

async function round(layer: Layer, ending: "goes on" | "is killed"): Promise<void> {
  const location = tempDirectory();
  await using queue = new SimpleQueue(location);
  const { id } = await queue.put("before");
  const holder = new Program("hold-lock.mjs", { location });
  await holder.hears("holding");
  holder.signal("SIGSTOP");
  layer.planned();
  layer.delivered();
  await expect(queue.put("impatient", { timeoutMs: 300 })).rejects.toMatchObject(BUSY);
  const longestBlock = watchEventLoop();
  const patient = queue.put("patient");
  const claim = queue.get();
  expect(await queue.stats()).toMatchObject({ ready: 1 });
  expect(await queue.find({ id })).toMatchObject({ state: "ready" });
  await expect(queue.put("impatient", { timeoutMs: 1_500 })).rejects.toMatchObject(BUSY);
  if (ending === "is killed") await holder.kill();
  else {
    holder.signal("SIGCONT");
    await holder.end();
  }
  const freedAt = performance.now();
  expect((await patient).inserted).toBe(true);
  await (await claim).ack();
  layer.count("slowest recovery ms", Math.round(performance.now() - freedAt));
  expect(performance.now() - freedAt).toBeLessThan(10_000);
  // The event loop went on all the while.
  expect(longestBlock()).toBeLessThan(1_000);
  expect(await queue.stats()).toEqual({ ready: 1, processing: 0, acked: 1, failed: 0 });
  expect(faultsOf(location)).toEqual([]);
}

/** Watches until the function that is returned is called; that tells the longest time between two turns, in milliseconds. */
function watchEventLoop(): () => number {
  let [last, longest] = [performance.now(), 0];
  const timer = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 10);
  return () => {
    clearInterval(timer);
    return longest;
  };
}

test("while a process is stopped in the middle of a transaction others wait for as long as they want, and then go on", async () => {
  const layer = new Layer({ name: "environment.locks", rounds: 2 });
  for (const seed of layer.seeds()) {
    await layer.round(seed, () => round(layer, "goes on"));
    await layer.round(seed, () => round(layer, "is killed"));
  }
  layer.done();
});
