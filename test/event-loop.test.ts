import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { Program } from "./support/program.ts";
import { RemoteQueue } from "./support/remote-queue.ts";
import { until } from "./support/until.ts";

test("a handler that blocks the event loop for three leases keeps its job, and its result counts", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue(location);
  const { id } = await queue.put({ blocksMs: 1_000 });
  const worker = new Program("worker.mjs", { location, options: { leaseMs: 300 } });
  await worker.hears("handling");
  let looks = 0;
  while (worker.said("handled").length === 0) {
    expect(await queue.getMany(1, { timeoutMs: 0 })).toEqual([]);
    expect(await queue.reclaimExpiredLeases()).toBe(0);
    looks++;
    await sleep(20);
  }
  expect(looks).toBeGreaterThan(3);
  expect(await worker.hears("job:acked")).toMatchObject({ id, attempt: 1 });
  await worker.end();
  expect(worker.said("lease:lost")).toEqual([]);
  expect(select(location, "SELECT status, attempts FROM messages")).toEqual([{ status: 2, attempts: 1 }]);
  expect(faultsOf(location)).toEqual([]);
});

test("jobs that were claimed for other slots right before a long block are given back, and done elsewhere", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue(location);
  const worker = new Program("worker.mjs", { location, workerOptions: { concurrency: 4 } });
  await worker.hears("running");
  await queue.putMany([{ blocksMs: 3_000 }, { n: 2 }, { n: 3 }, { n: 4 }]);
  await worker.hears("handling");
  // The worker's process has all four, but cannot begin with three of them.
  const jobs = [];
  while (jobs.length < 3) jobs.push(await queue.get({ timeoutMs: 2_500 }));
  expect(worker.said("handled")).toEqual([]);
  // On a busy machine they come back one by one.
  jobs.sort((a, b) => a.id - b.id);
  expect(jobs.map(({ data, attempt }) => [data, attempt])).toEqual([
    [{ n: 2 }, 1],
    [{ n: 3 }, 1],
    [{ n: 4 }, 1],
  ]);
  for (const job of jobs) await job.ack();
  await worker.hears("job:acked");
  // It goes on with what comes, and drops what is no longer its own without a word.
  await queue.put({ n: 5 });
  await worker.hears("job:acked");
  await worker.end();
  expect(worker.said("handling").map(({ data }) => data)).toEqual([{ blocksMs: 3_000 }, { n: 5 }]);
  expect(worker.said("lease:lost")).toEqual([]);
  expect(worker.said("error")).toEqual([]);
  expect(select(location, "SELECT status, attempts, count(*) AS jobs FROM messages GROUP BY 1, 2")).toEqual([
    { status: 2, attempts: 1, jobs: 5 },
  ]);
  expect(faultsOf(location)).toEqual([]);
});

test("a job that was claimed by hand is not renewed, however much else its process does", async () => {
  const location = tempLocation();
  const owner = new RemoteQueue(location, { leaseMs: 600 });
  await using queue = new SimpleQueue(location);
  const { id } = await queue.put("work");
  const claim = await owner.get();
  const again = await until(async () => {
    await owner.call("put", "more", { delayMs: 3_600_000 });
    return (await queue.getMany(1, { timeoutMs: 20 }))[0];
  });
  expect(again).toMatchObject({ id, attempt: 2 });
  await expect(owner.call("ack", claim)).rejects.toMatchObject({ code: "LEASE_EXPIRED" });
  await again?.ack();
  await owner.end();
});

test("while another process holds the write lock for a second, a put waits and the event loop does not", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue(location);
  await queue.put("first");
  const holder = new Program("hold-lock.mjs", { location });
  await holder.hears("holding");

  const delay = monitorEventLoopDelay({ resolution: 5 });
  const before = performance.eventLoopUtilization();
  delay.enable();
  let done = false;
  const putting = queue.putMany(["second", "third"]).finally(() => {
    done = true;
  });
  const getting = queue.getMany(10, { timeoutMs: 5_000 });
  for (const endsAt = performance.now() + 1_000; performance.now() < endsAt; ) {
    expect(done).toBe(false);
    await sleep(10);
  }
  delay.disable();
  const { utilization } = performance.eventLoopUtilization(before);
  await holder.end();
  expect((await putting).map(({ inserted }) => inserted)).toEqual([true, true]);
  expect((await getting).length).toBeGreaterThan(0);
  expect(utilization).toBeLessThan(0.5);
  expect(delay.percentile(99) / 1e6).toBeLessThan(100);
});
