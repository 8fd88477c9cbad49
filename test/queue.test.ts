import { writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import {
  EmptyError,
  EnqueueItem,
  type Job,
  LeaseExpiredError,
  PayloadError,
  type Serializer,
  SimpleQueue,
  StorageError,
} from "localqueue";
import { describe, expect, test } from "vitest";
import { lacks } from "./support/capabilities.ts";
import { lockDatabase, readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

describe("a job that is put", () => {
  test("can be got once, with its data, and is gone when it is acknowledged", async () => {
    const queue = openQueue();
    const before = Date.now();
    expect(await queue.put({ task: "send-email" })).toEqual({ id: 1, inserted: true });
    const job = await queue.get();
    expect(job).toMatchObject({ id: 1, data: { task: "send-email" }, attempt: 1, jobId: undefined });
    expect(job.receipt).toEqual(expect.any(String));
    expect(job.enqueuedAt.getTime()).toBeGreaterThanOrEqual(before);
    expect(job.enqueuedAt.getTime()).toBeLessThanOrEqual(Date.now());
    expect(job.leaseExpiresAt.getTime()).toBeGreaterThan(Date.now() + 50_000);
    await expect(queue.getNowait()).rejects.toThrow(EmptyError);
    await queue.ack(job);
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  });

  test.each([[null], [0], [""], [false], ["text"], [[1, [2]]], [{ "a\0b": "\ud800" }]])("may be %j", async (data) => {
    const queue = openQueue();
    await queue.put(data);
    expect((await queue.getNowait()).data).toEqual(data);
  });

  test("is delivered before those that were put later", async () => {
    const queue = openQueue<number>();
    const puts = Array.from({ length: 50 }, (_, n) => queue.put(n));
    const ids = (await Promise.all(puts)).map(({ id }) => id);
    expect(ids).toEqual(ids.toSorted((a, b) => a - b));
    for (let n = 0; n < 50; n++) expect((await queue.get()).data).toBe(n);
  });

  test("survives closing and opening", async () => {
    const location = tempLocation();
    await using first = new SimpleQueue(location);
    await first.put({ n: 1 }, { jobId: "a" });
    await first.close();
    const second = openQueue({ location });
    expect(await second.get()).toMatchObject({ id: 1, data: { n: 1 }, jobId: "a" });
  });

  test("is stored as it was when `put` was called", async () => {
    const queue = openQueue();
    const data = { n: 1 };
    const put = queue.put(data);
    const putMany = queue.putMany([data]);
    data.n = 2;
    await Promise.all([put, putMany]);
    expect((await queue.getMany(2)).map((job) => job.data)).toEqual([{ n: 1 }, { n: 1 }]);
  });

  test("waits for its time when it is delayed", async () => {
    const queue = openQueue();
    const started = performance.now();
    await queue.put("later", { delayMs: 200 });
    expect(await queue.stats()).toMatchObject({ ready: 1 });
    await expect(queue.getNowait()).rejects.toThrow(EmptyError);
    expect((await queue.get()).data).toBe("later");
    expect(performance.now() - started).toBeGreaterThan(195);
  });

  test("may have a budget of its own", async () => {
    const queue = openQueue({ maxRetries: 5 });
    await queue.put("once", { maxRetries: 0 });
    await (await queue.get()).nack();
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 1 });
  });

  test("is not put when its payload cannot be stored without loss", async () => {
    const queue = openQueue();
    await expect(queue.put({ items: [1, Number.NaN] })).rejects.toEqual(
      new PayloadError("Cannot encode the payload as JSON: `$.items[1]` is NaN"),
    );
    await expect(queue.put(undefined)).rejects.toThrow(PayloadError);
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 0 });
  });

  test("is not put when the signal aborted before", async () => {
    const queue = openQueue();
    await expect(queue.put(1, { signal: AbortSignal.abort("enough") })).rejects.toBe("enough");
    await expect(queue.putMany([1], { signal: AbortSignal.abort("enough") })).rejects.toBe("enough");
    expect(await queue.stats()).toMatchObject({ ready: 0 });
  });
});

describe("a job with a jobId", () => {
  test("is put once, whatever became of the first one", async () => {
    const queue = openQueue();
    const ends: ((job: Job<unknown>) => unknown)[] = [() => "processing", (job) => job.ack(), (job) => job.fail()];
    for (const [n, end] of ends.entries()) {
      const first = await queue.put({ first: true }, { jobId: `job ${n}` });
      expect(await queue.put({ first: false }, { jobId: `job ${n}` })).toEqual({ id: first.id, inserted: false });
      await end(await queue.get());
      expect(await queue.put({ first: false }, { jobId: `job ${n}` })).toEqual({ id: first.id, inserted: false });
    }
    expect(await queue.stats()).toEqual({ ready: 0, processing: 1, acked: 1, failed: 1 });
  });

  test("is another job in another queue of the same database", async () => {
    const location = tempLocation();
    const a = openQueue({ location, name: "a" });
    const b = openQueue({ location, name: "b" });
    expect((await a.put(1, { jobId: "x" })).inserted).toBe(true);
    expect((await b.put(1, { jobId: "x" })).inserted).toBe(true);
    expect((await b.put(1, { jobId: "y" })).inserted).toBe(true);
  });
});

describe("several jobs", () => {
  test("are put in one call, in order", async () => {
    const queue = openQueue<string>();
    expect(await queue.putMany(["a", "b", "c"])).toEqual([
      { id: 1, inserted: true },
      { id: 2, inserted: true },
      { id: 3, inserted: true },
    ]);
    expect((await queue.getMany(10)).map(({ data }) => data)).toEqual(["a", "b", "c"]);
  });

  test("may come from any iterable", async () => {
    const queue = openQueue<string>();
    const generated = (function* () {
      yield "a";
      yield new EnqueueItem("b");
    })();
    expect(await queue.putMany(generated)).toHaveLength(2);
    expect(await queue.putMany(new Set(["c"]))).toHaveLength(1);
  });

  test("may be none", async () => {
    expect(await openQueue().putMany([])).toEqual([]);
  });

  test("may be a mixture of payloads and items with options", async () => {
    const queue = openQueue<string>();
    const items = [
      "plain",
      new EnqueueItem("named", { jobId: "x" }),
      new EnqueueItem("late", { delayMs: 60_000 }),
      new EnqueueItem("once", { maxRetries: 0 }),
    ];
    await queue.putMany(items);
    const jobs = await queue.getMany(10);
    expect(jobs.map(({ data, jobId }) => [data, jobId])).toEqual([
      ["plain", undefined],
      ["named", "x"],
      ["once", undefined],
    ]);
    await Promise.all(jobs.map((job) => job.nack()));
    expect(await queue.stats()).toEqual({ ready: 3, processing: 0, acked: 0, failed: 1 });
  });

  test("may be items of another copy of the package", async () => {
    const queue = openQueue<string>();
    const foreign = { data: "a", jobId: "x", delayMs: 0, maxRetries: 2, [Symbol.for("localqueue.EnqueueItem")]: true };
    await queue.putMany([foreign as unknown as string]);
    expect(await queue.get()).toMatchObject({ data: "a", jobId: "x" });
  });

  test("are deduplicated against the queue and among each other", async () => {
    const queue = openQueue<string>();
    await queue.put("there", { jobId: "x" });
    const item = (data: string, jobId: string): EnqueueItem<string> => new EnqueueItem(data, { jobId });
    const results = await queue.putMany([item("a", "x"), item("b", "y"), item("c", "y"), "d"]);
    expect(results.map(({ inserted }) => inserted)).toEqual([false, true, false, true]);
    expect(results[0]?.id).toBe(1);
    expect(results[2]?.id).toBe(results[1]?.id);
    expect((await queue.getMany(10)).map(({ data }) => data)).toEqual(["there", "b", "d"]);
  });

  test("are put all or not at all", async () => {
    const queue = openQueue();
    await expect(queue.putMany([1, { a: [2n] }, 3])).rejects.toEqual(
      new PayloadError("Item 1: Cannot encode the payload as JSON: `$.a[0]` is a BigInt"),
    );
    expect(await queue.stats()).toMatchObject({ ready: 0 });
    expect(await queue.put(1)).toEqual({ id: 1, inserted: true });
  });
});

describe("a serializer of one's own", () => {
  const upperCase: Serializer<string> = {
    encode: (value) => Buffer.from(value.toUpperCase()),
    decode: (bytes) => new TextDecoder().decode(bytes),
  };

  test("decides what is stored", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, serializer: upperCase });
    const { id } = await queue.put("hello");
    expect(Buffer.from(readRow(location, id)["payload"] as Uint8Array).toString()).toBe("HELLO");
    expect((await queue.get()).data).toBe("HELLO");
  });

  test("may take its time", async () => {
    const later: Serializer<string> = {
      encode: async (value) => upperCase.encode(value),
      decode: async (bytes) => upperCase.decode(bytes),
    };
    const queue = openQueue({ serializer: later });
    await queue.put("a");
    await queue.putMany(["b", new EnqueueItem("c")]);
    expect((await queue.getMany(3)).map(({ data }) => data)).toEqual(["A", "B", "C"]);
  });

  test("may hand out memory that the caller goes on using", async () => {
    const raw: Serializer<Uint8Array> = { encode: (value) => value, decode: (bytes) => bytes };
    const queue = openQueue({ serializer: raw });
    const bytes = Uint8Array.of(1, 2, 3);
    const puts = Promise.all([queue.put(bytes), queue.putMany([bytes, bytes.subarray(1)])]);
    bytes.fill(9);
    await puts;
    const stored = (await queue.getMany(3)).map(({ data }) => [...data]);
    expect(stored).toEqual([
      [1, 2, 3],
      [1, 2, 3],
      [2, 3],
    ]);
  });

  test("may fail: nothing is put then", async () => {
    const boom = new Error("boom");
    for (const encode of [
      () => {
        throw boom;
      },
      () => Promise.reject(boom),
    ]) {
      const queue = openQueue({ serializer: { ...upperCase, encode } });
      const error = await queue.put("x").catch((reason: unknown) => reason);
      expect(error).toEqual(new PayloadError("The serializer could not encode the payload"));
      expect((error as Error).cause).toBe(boom);
      await expect(queue.putMany(["a", "b"])).rejects.toThrow("Item 0: The serializer could not encode the payload");
      expect(await queue.stats()).toMatchObject({ ready: 0 });
    }
  });

  test("may be given up while it encodes", async () => {
    const stuck: Serializer<string> = { ...upperCase, encode: () => new Promise(() => {}) };
    const queue = openQueue({ serializer: stuck });
    const controller = new AbortController();
    const put = queue.put("x", { signal: controller.signal });
    controller.abort("enough");
    await expect(put).rejects.toBe("enough");
  });
});

describe("a database", () => {
  test.skipIf(lacks("files"))("may be named by a file URL", async () => {
    const location = path.join(tempDirectory(), "with spaces and ü");
    const queue = new SimpleQueue(pathToFileURL(location));
    await queue.put("x");
    await queue.close();
    expect((await openQueue({ location }).get()).data).toBe("x");
  });

  test("holds any number of independent queues", async () => {
    const location = tempLocation();
    const emails = openQueue<string>({ location, name: "emails" });
    const reports = openQueue<string>({ location, name: "reports" });
    await emails.put("e");
    await reports.put("r");
    expect((await reports.get()).data).toBe("r");
    await expect(reports.getNowait()).rejects.toThrow(EmptyError);
    const job = await emails.get();
    for (const settle of [
      reports.ack(job),
      reports.nack(job),
      reports.fail(job),
      reports.release(job),
      reports.extendLease(job, 1_000),
    ]) {
      await expect(settle).rejects.toThrow(LeaseExpiredError);
    }
    expect(await emails.stats()).toEqual({ ready: 0, processing: 1, acked: 0, failed: 0 });
  });

  test.skipIf(lacks("files"))("that cannot be opened makes the first operation fail, not the constructor", async () => {
    const file = path.join(tempDirectory(), "a-file");
    writeFileSync(file, "no directory");
    const queue = openQueue({ location: file });
    const error = await queue.put(1).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(StorageError);
    expect(error).toMatchObject({ code: "BAD_LOCATION", outcome: "failed" });
  });

  test("that another process writes to does not block the event loop, and is waited for", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.put("first");
    const unlock = lockDatabase(location);
    let ticks = 0;
    const timer = setInterval(() => ticks++, 5);
    const put = queue.put("second");
    await until(() => ticks >= 30);
    clearInterval(timer);
    unlock();
    expect(await put).toEqual({ id: 2, inserted: true });
  });

  test("that stays locked for longer than the time-out is BUSY, and nothing was written", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.put("first");
    const unlock = lockDatabase(location);
    const started = performance.now();
    const error = await queue.put("second", { timeoutMs: 150 }).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ name: "StorageError", code: "BUSY", outcome: "failed" });
    expect(performance.now() - started).toBeLessThan(2_000);
    unlock();
    expect(await queue.stats()).toMatchObject({ ready: 1 });
  });

  test("that is locked still tells at once that nothing is ready", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.stats();
    const unlock = lockDatabase(location);
    const started = performance.now();
    await expect(queue.getNowait()).rejects.toThrow(EmptyError);
    expect(performance.now() - started).toBeLessThan(500);
    unlock();
  });
});
