import { SimpleQueue } from "localqueue";
import { describe, expect, test } from "vitest";
import { lockDatabase } from "../support/database.ts";
import { select } from "../support/inspect.ts";
import { openQueue } from "../support/queue.ts";
import { until } from "../support/until.ts";
import { PythonQueue } from "./support/python.ts";
import { sharedDirectory } from "./support/sides.ts";

describe("the counts are right", () => {
  test("at once after everything that Python does, also when it opens a file that we have open", async () => {
    const directory = sharedDirectory();
    const queue = openQueue({ location: directory });
    await queue.putMany([1, 2, 3, 4]);
    const python = new PythonQueue(directory, { max_retries: 0 });
    const first = await python.get({ timeout: 5 });
    expect(await queue.stats()).toEqual({ ready: 3, processing: 1, acked: 0, failed: 0 });
    await python.call("ack", first);
    expect(await queue.stats()).toEqual({ ready: 3, processing: 0, acked: 1, failed: 0 });
    await python.put(5);
    expect(await queue.stats()).toEqual({ ready: 4, processing: 0, acked: 1, failed: 0 });
    await python.call("fail", await python.get({ timeout: 5 }), "no");
    expect(await queue.stats()).toEqual({ ready: 3, processing: 0, acked: 1, failed: 1 });
    await python.call("retry_failed", 2);
    expect(await queue.stats()).toEqual({ ready: 4, processing: 0, acked: 1, failed: 0 });
    const ids = await python.call("put_many", [
      { data: 6, job_id: "a" },
      { data: 7, job_id: "a" },
    ]);
    expect(ids).toEqual([6, 6]);
    expect(await queue.stats()).toEqual({ ready: 5, processing: 0, acked: 1, failed: 0 });
    expect(await python.stats()).toEqual(await queue.stats());
  });

  test("also in queues whose names only Python allows", async () => {
    const directory = sharedDirectory();
    const queue = openQueue({ location: directory });
    await queue.put("mine");
    for (const name of ["", "x".repeat(1000), "__bus__:app", "__bus__:app:mail:more", "ä 😀\n\0'\""]) {
      const python = new PythonQueue(directory, { name });
      await python.put("theirs");
      const job = await python.get({ timeout: 5 });
      expect(JSON.parse(job.text)).toBe("theirs");
      await python.call("ack", job);
      await python.end();
    }
    expect(await queue.stats()).toEqual({ ready: 1, processing: 0, acked: 0, failed: 0 });
    expect(await queue.checkIntegrity()).toMatchObject({ ok: true });
  });
});

test("jobIds and errors that only Python allows are delivered and listed here", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory);
  const queue = openQueue({ location: directory });
  for (const jobId of ["", "x".repeat(10_000), " ", "a\0b", "😀"]) {
    const id = await python.put("job", { job_id: jobId });
    const job = await queue.get({ timeoutMs: 5000 });
    expect(job).toMatchObject({ id, jobId });
    await queue.fail(job, { lastError: new Error("no") });
    const other = await python.put("other");
    await python.call("fail", await python.get({ timeout: 5 }), "y".repeat(100_000));
    expect(await queue.listFailed({ afterId: id })).toMatchObject([{ id: other, lastError: "y".repeat(100_000) }]);
  }
});

test("a number of retries that JavaScript cannot count is no obstacle", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory, { max_retries: 2 ** 62 });
  const id = await python.put("for ever");
  const queue = openQueue({ location: directory });
  const job = await queue.get({ timeoutMs: 5000 });
  expect(job).toMatchObject({ id, attempt: 1 });
  await queue.nack(job);
  expect(await python.get({ timeout: 5 })).toMatchObject({ id, attempts: 1 });
});

test("what is put here for later, Python is given when it is due, and not before", async () => {
  const directory = sharedDirectory();
  const queue = openQueue({ location: directory });
  const python = new PythonQueue(directory);
  const start = Date.now();
  const { id } = await queue.put("later", { delayMs: 4000 });
  const now = await queue.put("now");
  expect(await python.get({ timeout: 5 })).toMatchObject({ id: now.id });
  expect(await python.stats()).toEqual({ ready: 1, processing: 1, acked: 0, failed: 0 });
  await expect(python.get({ timeout: 0 })).rejects.toMatchObject({ name: "Empty" });
  expect(await python.get({ timeout: 10 })).toMatchObject({ id, attempts: 0 });
  expect(Date.now() - start).toBeGreaterThanOrEqual(4000);
});

test("jobs outlive everybody who has the file open", async () => {
  const directory = sharedDirectory();
  const first = new PythonQueue(directory);
  await first.put("Python's");
  await first.call("close");
  await first.end();
  const queue = new SimpleQueue(directory);
  await queue.put("ours");
  const held = await queue.get();
  await queue.close();
  const again = new PythonQueue(directory);
  expect(await again.stats()).toEqual({ ready: 1, processing: 1, acked: 0, failed: 0 });
  await again.call("ack", held);
  expect(await again.get({ timeout: 5 })).toMatchObject({ text: '"ours"' });
});

test("the longest delay that Python allows is left alone", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory);
  const id = await python.put("in the year 287396");
  await python.call("nack", await python.get({ timeout: 5 }), { delay: 9_007_199_254_740 });
  const queue = openQueue({ location: directory });
  const next = await queue.put("now");
  expect(await queue.get({ timeoutMs: 5000 })).toMatchObject({ id: next.id });
  await expect(queue.getNowait()).rejects.toMatchObject({ code: "EMPTY" });
  const [job] = await queue.list({ state: "ready" });
  expect(job).toMatchObject({ id });
});

describe("while somebody else holds the lock for a second,", () => {
  test("puts of both wait for it", async () => {
    const directory = sharedDirectory();
    const queue = openQueue({ location: directory });
    const python = new PythonQueue(directory);
    // An object of Python's does one put at a time.
    const impatient = new PythonQueue(directory);
    await Promise.all([queue.stats(), python.stats(), impatient.stats()]);
    const unlock = lockDatabase(directory);
    const puts = Promise.all([python.put("theirs"), queue.put("ours")]);
    const end = Date.now() + 1000;
    const put = impatient.put("impatient", { timeout: 0.3 });
    await expect(put).rejects.toMatchObject({ message: "database is locked" });
    await expect(queue.put("impatient", { timeoutMs: 300 })).rejects.toMatchObject({ code: "BUSY" });
    await until(() => Date.now() >= end);
    unlock();
    await puts;
    expect(await queue.stats()).toMatchObject({ ready: 2 });
  });

  test("a Python claim that does not wait tells of an empty queue", async () => {
    const directory = sharedDirectory();
    const python = new PythonQueue(directory);
    await python.put("job");
    const unlock = lockDatabase(directory);
    const claim = python.get({ block: false });
    await expect(claim).rejects.toMatchObject({ name: "Empty", message: "queue is temporarily unavailable" });
    unlock();
    expect(await python.get({ block: false })).toMatchObject({ id: 1 });
  });
});

test("an engine of ours that is never idle lets Python have its turn", async () => {
  const directory = sharedDirectory();
  const queue = openQueue({ location: directory });
  const python = new PythonQueue(directory, { name: "other" });
  await python.stats();
  const batch = Array.from({ length: 1000 }, (_, i) => i);
  let busy = true;
  const lanes = [1, 2, 3].map(async () => {
    while (busy) await queue.putMany(batch);
  });
  try {
    for (let i = 0; i < 30; i++) await python.put(i);
    for (let i = 0; i < 30; i++) await python.call("ack", await python.get({ timeout: 5 }));
  } finally {
    busy = false;
    await Promise.all(lanes);
  }
  expect(await python.stats()).toEqual({ ready: 0, processing: 0, acked: 30, failed: 0 });
});

test("whoever waits here for a job is woken by a put of Python, not by the clock", async () => {
  const directory = sharedDirectory();
  const queue = openQueue({ location: directory });
  const python = new PythonQueue(directory);
  await python.stats();
  const delays: number[] = [];
  for (let i = 0; i < 20; i++) {
    const waiting = queue.get().then(() => performance.now());
    await queue.stats();
    await python.put(i);
    const put = performance.now();
    delays.push((await waiting) - put);
  }
  delays.sort((a, b) => a - b);
  // Without the watch on the directory it would be half a second.
  expect(delays[10]).toBeLessThan(100);
});

test("claims of both go by the id, whoever put the job", async () => {
  const directory = sharedDirectory();
  const queue = openQueue({ location: directory });
  const python = new PythonQueue(directory);
  await Promise.all(Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? queue.put(i) : python.put(i))));
  const claimed: number[] = [];
  for (let i = 0; i < 50; i++) {
    claimed.push((await queue.get({ timeoutMs: 5000 })).id, (await python.get({ timeout: 5 })).id);
  }
  expect(claimed).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));
});

test("what Python claims keeps the time of our clock: leases and times are milliseconds of both", async () => {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory, { lease_seconds: 30 });
  const before = Date.now();
  await python.put("job");
  const { leaseExpiresAt } = await python.get({ timeout: 5 });
  const after = Date.now();
  const [row] = select(directory, "SELECT created_at, updated_at, lease_until FROM messages");
  for (const column of ["created_at", "updated_at"]) {
    expect(Number(row?.[column])).toBeGreaterThanOrEqual(before);
    expect(Number(row?.[column])).toBeLessThanOrEqual(after);
  }
  expect(Math.round(leaseExpiresAt * 1000)).toBe(row?.["lease_until"]);
});
