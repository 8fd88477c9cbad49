import { setTimeout as sleep } from "node:timers/promises";
import { EmptyError, type Job, type Serializer, type SimpleQueue } from "localqueue";
import { describe, expect, test } from "vitest";
import { readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";

async function millisecondsOf(operation: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await operation().catch(() => {});
  return performance.now() - started;
}

/** Whether the job that is put now goes to somebody who no longer waits for it. */
async function isLost(queue: SimpleQueue): Promise<boolean> {
  await queue.put("after");
  const jobs = await queue.getMany(10, { timeoutMs: 1_000 });
  return !jobs.some(({ data, attempt }) => data === "after" && attempt === 1);
}

describe("get", () => {
  test("waits for a job that is put later", async () => {
    const queue = openQueue();
    const waiting = queue.get();
    await queue.put("x");
    expect((await waiting).data).toBe("x");
  });

  test("wakes up for a job that is put through another queue object, or another queue of that name", async () => {
    const location = tempLocation();
    const consumer = openQueue({ location });
    const waiting = consumer.get();
    await openQueue({ location, name: "another" }).put("not for you");
    await openQueue({ location }).put("x");
    expect((await waiting).data).toBe("x");
  });

  test("gives each of many that wait a job of its own", async () => {
    const queue = openQueue();
    const waiting = Array.from({ length: 20 }, () => queue.get());
    await queue.putMany(Array.from({ length: 20 }, (_, n) => n));
    const ids = (await Promise.all(waiting)).map(({ id }) => id);
    expect(new Set(ids).size).toBe(20);
  });

  test("gives up after its time-out, and not before", async () => {
    const queue = openQueue();
    await queue.stats();
    await expect(queue.get({ timeoutMs: 120 })).rejects.toThrow(EmptyError);
    expect(await millisecondsOf(() => queue.get({ timeoutMs: 120.5 }))).toBeGreaterThan(115);
    expect(await isLost(queue)).toBe(false);
  });

  test("does not wait at all with a time-out of 0", async () => {
    const queue = openQueue();
    await queue.stats();
    expect(await millisecondsOf(() => queue.get({ timeoutMs: 0 }))).toBeLessThan(500);
    await expect(queue.get({ timeoutMs: 0 })).rejects.toMatchObject({ code: "EMPTY" });
    expect(await millisecondsOf(() => queue.getNowait())).toBeLessThan(100);
  });

  test("rejects with the signal's reason when that aborts, and takes no job along", async () => {
    const queue = openQueue();
    const controller = new AbortController();
    const waiting = queue.get({ signal: controller.signal });
    await queue.stats();
    controller.abort("enough");
    await expect(waiting).rejects.toBe("enough");
    await expect(queue.get({ signal: controller.signal })).rejects.toBe("enough");
    await expect(queue.getMany(5, { signal: controller.signal })).rejects.toBe("enough");
    expect(await isLost(queue)).toBe(false);
  });

  test("gives the job back uncounted when the abort races the claim", async () => {
    const queue = openQueue({ maxRetries: 0 });
    for (let round = 0; round < 30; round++) {
      const { id } = await queue.put(round);
      const controller = new AbortController();
      const claiming = queue.get({ signal: controller.signal }).catch((reason: unknown) => reason);
      for (let turn = 0; turn < round; turn++) await sleep(0);
      controller.abort("enough");
      const outcome = await claiming;
      const job = outcome === "enough" ? await queue.get({ timeoutMs: 1_000 }) : (outcome as Job<unknown>);
      expect(job).toMatchObject({ id, attempt: 1 });
      await job.ack();
    }
  });

  test("leaves no listener behind on the signal", async () => {
    const queue = openQueue();
    const warnings: Error[] = [];
    const note = (warning: Error): number => warnings.push(warning);
    process.on("warning", note);
    const { signal } = new AbortController();
    for (let n = 0; n < 30; n++) await queue.get({ timeoutMs: 0, signal }).catch(() => {});
    await sleep(0);
    process.off("warning", note);
    expect(warnings).toEqual([]);
  });
});

describe("getMany", () => {
  test("claims up to its limit, in order", async () => {
    const queue = openQueue<number>();
    await queue.putMany([0, 1, 2, 3, 4]);
    expect((await queue.getMany(3)).map(({ data }) => data)).toEqual([0, 1, 2]);
    expect((await queue.getMany(3)).map(({ data }) => data)).toEqual([3, 4]);
    expect(await queue.stats()).toMatchObject({ processing: 5 });
  });

  test("waits for the first job only", async () => {
    const queue = openQueue();
    const waiting = queue.getMany(10);
    await queue.put("x");
    expect((await waiting).map(({ data }) => data)).toEqual(["x"]);
  });

  test("resolves to nothing after its time-out", async () => {
    const queue = openQueue();
    await queue.stats();
    expect(await millisecondsOf(() => queue.getMany(10, { timeoutMs: 120 }))).toBeGreaterThan(115);
    expect(await queue.getMany(10, { timeoutMs: 0 })).toEqual([]);
    expect(await isLost(queue)).toBe(false);
  });
});

describe("jobs", () => {
  test("gives one job at a time, and waits for more", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2]);
    const seen: number[] = [];
    for await (const job of queue.jobs()) {
      expect(await queue.stats()).toMatchObject({ processing: 1 });
      seen.push(job.data);
      await job.ack();
      if (job.data === 2) void queue.put(3);
      if (job.data === 3) break;
    }
    expect(seen).toEqual([1, 2, 3]);
  });

  test("ends when the signal aborts, while it waits as well as between two jobs", async () => {
    const queue = openQueue<number>();
    await queue.putMany([1, 2]);
    const controller = new AbortController();
    for await (const job of queue.jobs({ signal: controller.signal })) {
      await job.ack();
      controller.abort();
    }
    expect(await queue.stats()).toMatchObject({ ready: 1, processing: 0 });
    await queue.get();

    const second = new AbortController();
    const ended = (async () => {
      for await (const _ of queue.jobs({ signal: second.signal })) throw new Error("There was no job.");
    })();
    await queue.stats();
    second.abort();
    await ended;
    expect(await isLost(queue)).toBe(false);
  });

  test("ends when the queue closes", async () => {
    const queue = openQueue();
    await queue.put(1);
    let seen = 0;
    for await (const job of queue.jobs()) {
      seen++;
      await job.ack();
      void queue.close();
    }
    expect(seen).toBe(1);
  });

  test("leaves the job leased when the loop is left", async () => {
    const queue = openQueue();
    await queue.put(1);
    for await (const _ of queue.jobs()) break;
    expect(await queue.stats()).toMatchObject({ ready: 0, processing: 1 });
  });
});

describe("a payload that cannot be decoded", () => {
  const fragile: Serializer<string> = {
    encode: (value) => Buffer.from(value),
    decode: (bytes) => {
      const text = Buffer.from(bytes).toString();
      if (text.startsWith("bad")) throw new RangeError(`cannot read "${text}"`);
      return text;
    },
  };
  const later: Serializer<string> = { ...fragile, decode: async (bytes) => fragile.decode(bytes) };

  test.each([
    ["at once", fragile],
    ["later", later],
  ])("becomes a dead letter with its bytes kept, and the next job is given: %s", async (_, serializer) => {
    const location = tempLocation();
    const queue = openQueue({ location, serializer });
    await queue.putMany(["bad secret", "good"]);
    expect((await queue.get()).data).toBe("good");
    expect(await queue.stats()).toEqual({ ready: 0, processing: 1, acked: 0, failed: 1 });
    const row = readRow(location, 1);
    expect(row).toMatchObject({
      failure_reason: "undecodable_payload",
      last_error: "RangeError: the serializer could not decode the payload",
      attempts: 1,
    });
    expect(Buffer.from(row["payload"] as Uint8Array).toString()).toBe("bad secret");
  });

  test("that is no JSON is told from one that is no UTF-8", async () => {
    const location = tempLocation();
    const raw: Serializer<Uint8Array> = { encode: (bytes) => bytes, decode: (bytes) => bytes };
    await openQueue({ location, serializer: raw }).putMany([Buffer.from("{secret"), Uint8Array.of(0xff)]);
    const queue = openQueue({ location });
    await expect(queue.getNowait()).rejects.toThrow(EmptyError);
    expect(readRow(location, 1)["last_error"]).toBe("PayloadError: The payload is not valid JSON");
    expect(readRow(location, 2)["last_error"]).toBe("PayloadError: The payload is not valid UTF-8");
  });

  test("does not end the wait for one that can", async () => {
    const queue = openQueue({ serializer: fragile });
    await queue.put("bad");
    const waiting = queue.get({ timeoutMs: 5_000 });
    await until(async () => (await queue.stats()).failed === 1);
    await queue.put("good");
    expect((await waiting).data).toBe("good");
  });

  test("does not make the wait longer than its time-out", async () => {
    const queue = openQueue({ serializer: fragile });
    await queue.putMany(["bad", "bad", "bad"]);
    await expect(queue.get({ timeoutMs: 100 })).rejects.toThrow(EmptyError);
    await queue.put("bad");
    expect(await queue.getMany(5, { timeoutMs: 0 })).toEqual([]);
    expect(await queue.stats()).toMatchObject({ failed: 4, processing: 0 });
  });

  test("takes no place in a batch", async () => {
    const queue = openQueue({ serializer: fragile });
    await queue.putMany(["a", "bad 1", "b", "bad 2", "c", "d", "e"]);
    expect((await queue.getMany(4)).map(({ data }) => data)).toEqual(["a", "b", "c", "d"]);
    expect((await queue.getMany(4)).map(({ data }) => data)).toEqual(["e"]);
    expect(await queue.stats()).toMatchObject({ failed: 2, processing: 5 });
  });
});

test("an abort that comes after the claim, but before the job is handed out, gives the jobs back uncounted", async () => {
  let controller = new AbortController();
  const aborting: Serializer<string> = {
    encode: (value) => Buffer.from(value),
    decode: (bytes) => {
      controller.abort("enough");
      return Buffer.from(bytes).toString();
    },
  };
  const queue = openQueue({ serializer: aborting, maxRetries: 0 });
  await queue.putMany(["a", "b"]);
  await expect(queue.get({ signal: controller.signal })).rejects.toBe("enough");
  controller = new AbortController();
  await expect(queue.getMany(5, { signal: controller.signal })).rejects.toBe("enough");
  expect((await queue.getMany(5)).map(({ attempt }) => attempt)).toEqual([1, 1]);
});

describe("a decoder that takes its time", () => {
  test("is not waited for after an abort: the job goes back, uncounted", async () => {
    let hang = true;
    const slow: Serializer<string> = {
      encode: (value) => Buffer.from(value),
      decode: (bytes) => (hang ? new Promise(() => {}) : Buffer.from(bytes).toString()),
    };
    const queue = openQueue({ serializer: slow, maxRetries: 0 });
    await queue.putMany(["a", "b"]);
    for (const claim of [queue.get.bind(queue), queue.getMany.bind(queue, 5)]) {
      const controller = new AbortController();
      const waiting = claim({ signal: controller.signal });
      await until(async () => (await queue.stats()).processing > 0);
      controller.abort("enough");
      await expect(waiting).rejects.toBe("enough");
      expect(await queue.stats()).toMatchObject({ ready: 2, processing: 0 });
    }
    hang = false;
    expect((await queue.getMany(5)).map(({ data, attempt }) => [data, attempt])).toEqual([
      ["a", 1],
      ["b", 1],
    ]);
  });

  test("may still fail after an abort, without an unhandled rejection", async () => {
    const failed: (() => void)[] = [];
    const slow: Serializer<string> = {
      encode: (value) => Buffer.from(value),
      decode: () => new Promise((_, reject) => failed.push(() => reject(new Error("too late")))),
    };
    const queue = openQueue({ serializer: slow });
    await queue.put("a");
    const controller = new AbortController();
    const waiting = queue.get({ signal: controller.signal });
    await until(() => failed.length === 1);
    controller.abort("enough");
    await expect(waiting).rejects.toBe("enough");
    failed[0]?.();
    await sleep(0);
  });
});
