import { AsyncLocalStorage } from "node:async_hooks";
import { type Channel, channel } from "node:diagnostics_channel";
import { setTimeout as sleep } from "node:timers/promises";
import { type ChannelMessages, EnqueueItem, Reject, RetryPolicy, Worker } from "localqueue";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { listen, listenToAll } from "./support/channels.ts";
import { runModule } from "./support/child.ts";
import { refuse, steal } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { until } from "./support/until.ts";
import { collectWarnings, gate, start } from "./support/worker.ts";

const TRACE = `00-${"0af76519".repeat(4)}-b7ad6b7169203331-01`;

const NAMES: readonly (keyof ChannelMessages)[] = [
  "localqueue:put",
  "localqueue:put:end",
  "localqueue:claim",
  "localqueue:handler",
  "localqueue:handler:end",
  "localqueue:settle",
  "localqueue:lease-lost",
  "localqueue:error",
];

/** Every put of the test gets a context: the trace, and the number of the put. */
function linkPuts(): void {
  let puts = 0;
  listen("localqueue:put", (message) => {
    message.context = `${TRACE} ${++puts}`;
  });
}

describe("localqueue:put", () => {
  test("is told before the job is stored, and its end with the same object", async () => {
    const queue = openQueue({ name: "emails" });
    const before: unknown[] = [];
    const seen = new WeakSet<object>();
    listen("localqueue:put", (message) => {
      before.push({ ...message });
      seen.add(message);
    });
    const ends = listenToAll("localqueue:put:end");
    const { id } = await queue.put({ secret: 1 }, { jobId: "first", delayMs: 5 });
    expect(before).toEqual([{ queue: "emails", jobId: "first", delayMs: 5, context: undefined }]);
    const end = { queue: "emails", jobId: "first", delayMs: 5, context: undefined, error: undefined, id };
    expect(ends).toEqual([["localqueue:put:end", { ...end, inserted: true, durationMs: expect.any(Number) }]]);
    expect(seen.has(ends[0]?.[1] as object)).toBe(true);

    await queue.put({ secret: 1 }, { jobId: "first" });
    expect(ends[1]?.[1]).toMatchObject({ id, inserted: false });
  });

  test("is told for each job of a putMany, each with a context of its own", async () => {
    linkPuts();
    const queue = openQueue();
    const ends = listenToAll("localqueue:put:end");
    const claims = listenToAll("localqueue:claim");
    const results = await queue.putMany(["a", new EnqueueItem("b", { jobId: "b" }), "c"]);
    const [a, b, c] = results.map(({ id }) => id);
    expect(ends.map(([, message]) => message)).toMatchObject([
      { id: a, jobId: undefined, context: `${TRACE} 1` },
      { id: b, jobId: "b", context: `${TRACE} 2` },
      { id: c, jobId: undefined, context: `${TRACE} 3` },
    ]);
    await queue.getMany(3);
    expect(claims.map(([, message]) => message)).toMatchObject([
      { id: a, context: `${TRACE} 1` },
      { id: b, context: `${TRACE} 2` },
      { id: c, context: `${TRACE} 3` },
    ]);
  });

  test("ends with the error when nothing could be put", async () => {
    const queue = openQueue();
    await queue.close();
    const ends = listenToAll("localqueue:put:end");
    const error = await queue.putMany(["a", "b"]).catch((thrown) => thrown);
    const refused = await queue.put("c").catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "CLOSED" });
    expect(ends.map(([, end]) => end)).toMatchObject(
      [error, error, refused].map((reason) => ({ id: undefined, inserted: undefined, error: reason })),
    );
  });

  test.each([
    ["too long", "x".repeat(1025)],
    ["no string", { traceparent: TRACE }],
    ["with a NUL", "a\0b"],
    ["with half a character", "a\ud800"],
  ])("takes no context that is %s; one warning says so, and the job is put", async (_, context) => {
    // In a process of its own, since the warning comes once per process.
    const printed = await runModule(`
      import { subscribe } from "node:diagnostics_channel";
      import { SimpleQueue } from "dist/index.js";
      const warnings = [], contexts = [];
      process.on("warning", ({ code, message }) => warnings.push([code, message]));
      subscribe("localqueue:put", (message) => { message.context = ${JSON.stringify(context)}; });
      subscribe("localqueue:claim", ({ context }) => contexts.push(context ?? null));
      const queue = new SimpleQueue(${JSON.stringify(tempLocation())});
      await queue.put(1);
      await queue.put(2);
      await queue.getMany(2);
      await queue.close();
      console.log(JSON.stringify({ warnings, contexts }));`);
    const message = expect.stringContaining("a string of at most 1024 characters");
    expect(printed).toEqual({ warnings: [["LOCALQUEUE_CONTEXT_IGNORED", message]], contexts: [null, null] });
  });

  test("takes a context of 1,024 characters of any kind", async () => {
    const warnings = collectWarnings();
    const context = "€\n".repeat(512);
    listen("localqueue:put", (message) => {
      message.context = context;
    });
    const claims = listenToAll("localqueue:claim");
    const queue = openQueue();
    await queue.put(1);
    await queue.get();
    expect(claims[0]?.[1]).toMatchObject({ context });
    expect(warnings).toEqual([]);
  });
});

describe("the context of a job", () => {
  test("comes with each of its deliveries, by hand or to a worker, in this process or another", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, maxRetries: 9 });
    const deliveries = listenToAll("localqueue:claim", "localqueue:handler");
    linkPuts();
    const { id } = await queue.put("job", { jobId: "j" });
    await (await queue.get()).nack();
    await (await queue.get()).release();
    const worker = new Worker(queue, () => Promise.reject(new Error("no")), { retry: RetryPolicy.immediate() });
    await worker.runOnce();
    const elsewhere = await runModule(`
      import { subscribe } from "node:diagnostics_channel";
      import { SimpleQueue } from "dist/index.js";
      subscribe("localqueue:claim", (message) => console.log(JSON.stringify(message)));
      const queue = new SimpleQueue(${JSON.stringify(location)});
      await (await queue.get()).ack();
      await queue.close();`);
    const message = (attempt: number): object => {
      return { queue: "default", id, jobId: "j", attempt, context: `${TRACE} 1`, enqueuedAt: expect.any(Date) };
    };
    expect(deliveries).toMatchObject([
      ["localqueue:claim", message(1)],
      ["localqueue:claim", message(2)],
      ["localqueue:claim", message(2)],
      ["localqueue:handler", message(2)],
    ]);
    expect(elsewhere).toEqual({ ...message(3), enqueuedAt: expect.any(String) });
  });

  test("stays with a dead letter, and comes with its replay", async () => {
    linkPuts();
    const queue = openQueue();
    const { id } = await queue.put("job");
    await (await queue.get()).fail();
    const claims = listenToAll("localqueue:claim");
    await queue.retryFailed(id);
    await queue.get();
    expect(claims.map(([, message]) => message)).toMatchObject([{ id, attempt: 1, context: `${TRACE} 1` }]);
  });

  test("stays with a job that is put again by its jobId", async () => {
    linkPuts();
    const claims = listenToAll("localqueue:claim");
    const queue = openQueue();
    await queue.put("first", { jobId: "j" });
    await queue.put("second", { jobId: "j" });
    await queue.get();
    expect(claims[0]?.[1]).toMatchObject({ context: `${TRACE} 1` });
  });

  test("is nothing if nobody set it", async () => {
    const claims = listenToAll("localqueue:claim");
    const queue = openQueue();
    await queue.put("job");
    const job = await queue.get();
    expect(claims).toEqual([
      [
        "localqueue:claim",
        { queue: "default", id: job.id, jobId: undefined, attempt: 1, enqueuedAt: job.enqueuedAt, context: undefined },
      ],
    ]);
  });
});

describe("localqueue:handler", () => {
  test("is told when the handler is called, and with the same object when it has ended", async () => {
    const queue = openQueue();
    const { id } = await queue.put("job");
    const begun: object[] = [];
    listen("localqueue:handler", (message) => begun.push(message));
    const ended: ChannelMessages["localqueue:handler:end"][] = [];
    listen("localqueue:handler:end", (message) => ended.push(message));
    const seenInside: unknown[] = [];
    const worker = new Worker(queue, async () => {
      await sleep(20);
      seenInside.push({ ...begun[0] });
    });
    await worker.runOnce();
    const message = { queue: "default", id, jobId: undefined, attempt: 1, enqueuedAt: expect.any(Date) };
    expect(seenInside).toEqual([{ ...message, context: undefined }]);
    const end = {
      ...message,
      context: undefined,
      durationMs: expect.any(Number),
      outcome: "returned",
      error: undefined,
    };
    expect(ended).toEqual([end]);
    expect(ended[0]).toBe(begun[0]);
    expect(ended[0]?.durationMs).toBeGreaterThan(15);
  });

  test.each([
    ["throws", () => Promise.reject(new Reject("no")), {}, "threw"],
    ["throws at once", () => thrower(), {}, "threw"],
    ["takes too long", (signal: AbortSignal) => sleep(10_000, undefined, { signal }), { timeoutMs: 20 }, "timed out"],
  ])("tells how it ended when the handler %s", async (_, handle, options, outcome) => {
    const queue = openQueue();
    await queue.put("job");
    const ends = listenToAll("localqueue:handler:end");
    await new Worker(queue, (_job, { signal }) => handle(signal), options).runOnce();
    expect(ends.map(([, message]) => message)).toMatchObject([{ outcome, error: expect.any(Error) }]);
  });

  test("has the stores that are bound to it active inside the handler, each run with its own", async () => {
    const queue = openQueue();
    await queue.putMany(["a", "b", "c"]);
    const spans = new AsyncLocalStorage<string>();
    bind(channel("localqueue:handler"), spans, (message) => `span of ${(message as { id: number }).id}`);
    const both = gate();
    const inside: string[] = [];
    const worker = new Worker(
      queue,
      async (job) => {
        if (inside.push(`${job.id}: ${spans.getStore()}`) === 3) both.open();
        await both.passed;
        await sleep(1);
        inside.push(`${job.id}: ${spans.getStore()}`);
        await queue.put("child", { delayMs: 60_000 });
        inside.push(`${job.id}: ${spans.getStore()}`);
      },
      { concurrency: 3 },
    );
    void start(worker);
    await until(async () => (await queue.stats()).acked === 3);
    expect([...inside].sort()).toEqual([1, 2, 3].flatMap((id) => Array(3).fill(`${id}: span of ${id}`)));
    expect(spans.getStore()).toBeUndefined();
  });

  test("is active when the handler puts: the put of a child knows its parent", async () => {
    const queue = openQueue();
    await queue.put("parent");
    const spans = new AsyncLocalStorage<number>();
    bind(channel("localqueue:handler"), spans, (message) => (message as { id: number }).id);
    listen("localqueue:put", (message) => {
      message.context = `child of ${spans.getStore()}`;
    });
    await new Worker(queue, () => queue.put("child")).runOnce();
    const claims = listenToAll("localqueue:claim");
    await queue.get();
    expect(claims[0]?.[1]).toMatchObject({ id: 2, context: "child of 1" });
  });
});

describe("localqueue:settle", () => {
  test("tells what became of each delivery of a worker", async () => {
    const settled = listenToAll("localqueue:settle");
    const queue = openQueue({ maxRetries: 1, serializer: { encode: (text: string) => Buffer.from(text), decode } });
    await queue.putMany(["good", "bad", "ugly", new EnqueueItem("unreadable", { jobId: "u" }), "by hand"]);
    const worker = new Worker(
      queue,
      async (job) => {
        if (job.data === "bad") throw new Error("secret?");
        if (job.data === "ugly") throw new Reject("no", { category: "taste" });
        if (job.data === "by hand") await job.fail({ category: "hand" });
      },
      { retry: RetryPolicy.fixed(7) },
    );
    worker.on("error", () => {});
    void start(worker);
    await until(() => settled.length === 6);
    const unset = { delayMs: undefined, reason: undefined, category: undefined, lastError: undefined };
    const common = { queue: "default", jobId: undefined, attempt: 1, ...unset };
    const failed = { ...common, outcome: "failed" };
    const bad = { ...common, id: 2, lastError: "Error: secret?" };
    const messages = settled.map(([, message]) => message as ChannelMessages["localqueue:settle"]);
    expect(messages.sort((a, b) => a.id - b.id)).toEqual([
      { ...common, id: 1, outcome: "acked" },
      { ...bad, outcome: "retried", delayMs: 7 },
      { ...bad, outcome: "failed", attempt: 2, reason: "retries_exhausted" },
      { ...failed, id: 3, reason: "rejected", category: "taste", lastError: "Reject: no" },
      { ...failed, id: 4, jobId: "u", reason: "undecodable_payload", lastError: expect.any(String) },
      { ...failed, id: 5, reason: "explicit_permanent_failure", category: "hand" },
    ]);
  });

  test("tells what was settled by hand, as far as it is known", async () => {
    const settled = listenToAll("localqueue:settle");
    const queue = openQueue();
    await queue.put("job", { jobId: "j" });
    await (await queue.get()).release();
    await (await queue.get()).nack({ delayMs: 1, lastError: new Error("later") });
    const { id, receipt } = await queue.get();
    await queue.ack({ id, receipt });
    expect(settled.map(([, message]) => message)).toMatchObject([
      { id, jobId: "j", attempt: 1, outcome: "released" },
      { id, jobId: "j", attempt: 1, outcome: "retried", delayMs: 1, lastError: "Error: later" },
      { id, jobId: undefined, attempt: undefined, outcome: "acked" },
    ]);
  });
});

describe("localqueue:lease-lost", () => {
  test("is told to who settles or extends too late", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const told = listenToAll("localqueue:lease-lost", "localqueue:settle");
    const { id } = await queue.put("job", { jobId: "j" });
    const job = await queue.get();
    steal(location, id);
    await expect(job.ack()).rejects.toThrow();
    await expect(queue.extendLease({ id, receipt: job.receipt }, 1_000)).rejects.toThrow();
    expect(told).toEqual([
      ["localqueue:lease-lost", { queue: "default", id, jobId: "j", attempt: 1 }],
      ["localqueue:lease-lost", { queue: "default", id, jobId: undefined, attempt: undefined }],
    ]);
  });

  test("is told when a worker loses the lease of a job that it runs", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const told = listenToAll("localqueue:lease-lost", "localqueue:settle", "localqueue:handler:end");
    await queue.put("job", { jobId: "j" });
    const worker = new Worker(queue, (job) => steal(location, job.id));
    await worker.runOnce();
    expect(told).toMatchObject([
      ["localqueue:handler:end", { outcome: "returned" }],
      ["localqueue:lease-lost", { queue: "default", id: 1, jobId: "j", attempt: 1 }],
    ]);
  });
});

test("localqueue:error tells the faults of the storage that a worker waits out", async () => {
  const location = tempLocation();
  const told = listenToAll("localqueue:error");
  const queue = openQueue({ location, name: "q" });
  await queue.put("job");
  const mend = refuse(location, 1);
  const worker = new Worker(queue, () => {});
  worker.on("error", () => {});
  void start(worker);
  await until(() => told.length > 0);
  mend();
  expect(told[0]).toEqual(["localqueue:error", { queue: "q", error: expect.objectContaining({ code: "IO" }) }]);
  await until(async () => (await queue.stats()).acked === 1);
});

test("as long as nobody listens, no message is made", async () => {
  const made = vi.fn();
  for (const name of NAMES) {
    const own = channel(name);
    expect([name, own.hasSubscribers]).toEqual([name, false]);
    Object.assign(own, { publish: made, runStores: made });
    onTestFinished(() => {
      for (const method of ["publish", "runStores"]) Reflect.deleteProperty(own, method);
    });
  }
  const location = tempLocation();
  const queue = openQueue({ location });
  await queue.putMany(["by a worker", "by hand", "lost"]);
  await new Worker(queue, () => {}).runOnce();
  await (await queue.get()).ack();
  const lost = await queue.get();
  steal(location, lost.id);
  await expect(lost.ack()).rejects.toThrow();
  expect(made).not.toHaveBeenCalled();
});

test("a subscriber that throws harms no job; Node reports it as an uncaught exception", async () => {
  const names = ["put", "put:end", "claim", "handler", "handler:end", "settle"];
  const printed = await runModule(`
    import { AsyncLocalStorage } from "node:async_hooks";
    import { channel, subscribe } from "node:diagnostics_channel";
    import { SimpleQueue, Worker } from "dist/index.js";
    const caught = [];
    process.on("uncaughtException", ({ message }) => caught.push(message));
    for (const name of ${JSON.stringify(names)}) subscribe("localqueue:" + name, () => { throw new Error(name); });
    channel("localqueue:handler").bindStore(new AsyncLocalStorage(), () => { throw new Error("store"); });
    const queue = new SimpleQueue(${JSON.stringify(tempLocation())});
    await queue.put("job");
    const handled = [];
    await new Worker(queue, (job) => void handled.push(job.data)).runOnce();
    const stats = await queue.stats();
    await queue.close();
    console.log(JSON.stringify({ handled, stats, caught: caught.sort() }));`);
  expect(printed).toEqual({
    handled: ["job"],
    stats: { ready: 0, processing: 0, acked: 1, failed: 0 },
    caught: [...names, "store"].sort(),
  });
});

function bind<Store>(to: Channel, store: AsyncLocalStorage<Store>, transform: (message: unknown) => Store): void {
  to.bindStore(store, transform);
  onTestFinished(() => void to.unbindStore(store));
}

function thrower(): never {
  throw new Error("at once");
}

function decode(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString();
  if (text === "unreadable") throw new Error("unreadable");
  return text;
}
