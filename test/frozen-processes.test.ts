import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { Program } from "./support/program.ts";
import { RemoteQueue } from "./support/remote-queue.ts";

test("a worker that was stopped past its lease loses the job to another one, and can no longer settle it", async () => {
  const location = tempLocation();
  const options = { leaseMs: 500 };
  await using queue = new SimpleQueue<object>(location);
  const zombie = new Program("worker.mjs", { location, options });
  await zombie.hears("running");
  const { id } = await queue.put({ waitsMs: 1_000 });
  expect(await zombie.hears("handling")).toMatchObject({ id, attempt: 1 });
  zombie.signal("SIGSTOP");
  const successor = new Program("worker.mjs", { location, options });
  expect(await successor.hears("handling")).toMatchObject({ id, attempt: 2 });
  expect(await successor.hears("job:acked")).toMatchObject({ id, attempt: 2 });
  zombie.signal("SIGCONT");
  expect(await zombie.hears("lease:lost")).toMatchObject({ id, attempt: 1 });
  await zombie.hears("handled");
  // It is fit for work again.
  await successor.end();
  const next = await queue.put({});
  expect(await zombie.hears("job:acked")).toMatchObject({ id: next.id, attempt: 1 });
  await zombie.end();
  expect(zombie.said("job:acked").length).toBe(1);
  expect(zombie.said("lease:lost").length).toBe(1);
  expect(zombie.said("error")).toEqual([]);
  expect(select(location, "SELECT status, attempts FROM messages ORDER BY id")).toEqual([
    { status: 2, attempts: 2 },
    { status: 2, attempts: 1 },
  ]);
  expect(faultsOf(location)).toEqual([]);
});

test("every way in which a stopped process could end its delivery late is refused, and changes nothing", async () => {
  const location = tempLocation();
  const zombie = new RemoteQueue(location, { leaseMs: 500 });
  await using queue = new SimpleQueue(location);
  await queue.put("work");
  const claim = await zombie.get();
  zombie.signal("SIGSTOP");
  const job = await queue.get({ timeoutMs: 10_000 });
  expect(job).toMatchObject({ id: claim.id, attempt: 2 });
  zombie.signal("SIGCONT");
  const row = select(location, "SELECT * FROM messages");
  for (const method of ["ack", "nack", "fail", "release"]) {
    await expect(zombie.call(method, claim)).rejects.toMatchObject({ code: "LEASE_EXPIRED" });
  }
  await expect(zombie.call("extendLease", claim, 60_000)).rejects.toMatchObject({ code: "LEASE_EXPIRED" });
  expect(select(location, "SELECT * FROM messages")).toEqual(row);
  await job.ack();
  await zombie.end();
  expect(faultsOf(location)).toEqual([]);
});
