import { setTimeout as sleep } from "node:timers/promises";
import { type Job, SimpleQueue, StorageError } from "localqueue";
import { describe, expect, onTestFinished, test } from "vitest";
import { CuttingProxy } from "./support/cutting-proxy.ts";
import { readRow } from "./support/database.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { PostgresLoad } from "./support/postgres-load.ts";
import { Random } from "./support/random.mjs";

interface Line {
  readonly proxy: CuttingProxy;
  /** Where it leads to, directly. */
  readonly location: string;
  /** The same through the proxy. */
  readonly through: string;
}

async function newLine(): Promise<Line> {
  const location = tempLocation();
  const url = new URL(location);
  const proxy = await CuttingProxy.to(Number(url.port));
  onTestFinished(() => proxy.close());
  url.port = `${proxy.port}`;
  return { proxy, location, through: url.href };
}

/** What an operation told whose connection was cut: that it is done, that it is not, or that nobody knows. */
async function outcomeOf(operation: Promise<unknown>): Promise<"done" | "failed" | "unknown"> {
  try {
    await operation;
    return "done";
  } catch (error) {
    expect(error).toBeInstanceOf(StorageError);
    return (error as StorageError).outcome;
  }
}

/** Within the transaction, right before its end, and after that was sent. */
const MOMENTS = [
  ["inside the transaction", "UPDATE", "INSERT", "before"],
  ["before COMMIT is passed on", "COMMIT\0", "COMMIT\0", "before"],
  ["after COMMIT was passed on", "COMMIT\0", "COMMIT\0", "after"],
] as const;

describe.each(MOMENTS)("a connection that is cut %s", (_, change, addition, cut) => {
  test("has put the job if it says so, and once", async () => {
    const { proxy, location, through } = await newLine();
    await using queue = new SimpleQueue(through);
    await queue.put(1);
    const sprung = proxy.cutAt(addition, cut);
    const outcome = await outcomeOf(queue.put(2, { jobId: "two" }));
    await sprung;
    const there = select(location, "SELECT id FROM messages WHERE job_id = 'two'").length;
    if (outcome !== "unknown") expect(there).toBe(outcome === "done" ? 1 : 0);
    expect((await queue.put(2, { jobId: "two" })).inserted).toBe(there === 0);
    expect(await queue.stats()).toMatchObject({ ready: 2 });
    expect(faultsOf(location)).toEqual([]);
  });

  test("has acknowledged the job if it says so", async () => {
    const { proxy, location, through } = await newLine();
    await using queue = new SimpleQueue(through);
    const { id } = await queue.put(1);
    const job = await queue.get();
    const sprung = proxy.cutAt(change, cut);
    const outcome = await outcomeOf(job.ack());
    await sprung;
    const { status } = readRow(location, id);
    if (outcome !== "unknown") expect(status).toBe(outcome === "done" ? 2 : 1);
    expect(faultsOf(location)).toEqual([]);
  });

  test("leaves no job claimed by nobody for longer than its lease", async () => {
    const { proxy, location, through } = await newLine();
    await using queue = new SimpleQueue<number>(through, { leaseMs: 1_000 });
    const { id } = await queue.put(1);
    const sprung = proxy.cutAt(change, cut);
    const job = await queue.get({ timeoutMs: 5_000 });
    await sprung;
    expect(job).toMatchObject({ id, data: 1 });
    await job.ack();
    expect(readRow(location, id)).toMatchObject({ status: 2 });
    expect(faultsOf(location)).toEqual([]);
  });
});

test("a connection that is cut after it committed many puts at once answers each of them rightly", async () => {
  const { proxy, location, through } = await newLine();
  await using queue = new SimpleQueue<number>(through);
  await queue.stats();
  const sprung = proxy.cutAt("COMMIT\0", "after");
  const outcomes = await Promise.all(Array.from({ length: 50 }, (_, n) => outcomeOf(queue.put(n, { jobId: `${n}` }))));
  await sprung;
  const there = new Set(select(location, "SELECT job_id FROM messages").map((row) => row["job_id"]));
  for (const [n, outcome] of outcomes.entries()) {
    if (outcome !== "unknown") expect(there.has(`${n}`), `put ${n}`).toBe(outcome === "done");
  }
  expect(select(location, "SELECT count(*) AS n FROM messages")).toEqual([{ n: there.size }]);
});

test("processes whose connections are cut at random moments lose nothing, and do nothing twice", async () => {
  const { proxy, location, through } = await newLine();
  const load = new PostgresLoad(2);
  await load.add(through);
  await load.add(through);
  await load.add(location);
  const random = new Random(2);
  for (let cuts = 0; cuts < 12; cuts++) {
    await sleep(random.between(50, 400)); // at any moment
    const how = random.weighted({ commit: 3, change: 2, all: 1 });
    if (how === "all") {
      proxy.cut();
      await sleep(random.between(0, 800));
      proxy.heal();
    } else await proxy.cutAt(how === "commit" ? "COMMIT\0" : "UPDATE", random.pick(["before", "after"] as const));
  }
  await load.resumes();
  await load.check(location);
}, 120_000);

test("a network that falls silent for longer than the leases gives the jobs to others, and what comes late is refused", async () => {
  const { proxy, location, through } = await newLine();
  await using queue = new SimpleQueue<number>(through, { leaseMs: 1_000 });
  await using other = new SimpleQueue<number>(location, { leaseMs: 30_000 });
  const { id } = await queue.put(1);
  const job: Job<number> = await queue.get();
  proxy.silence();
  const late = outcomeOf(job.ack()).catch(() => "refused");
  const taken = await other.get({ timeoutMs: 10_000 });
  expect(taken).toMatchObject({ id, attempt: 2 });
  proxy.heal();
  expect(await late).not.toBe("done");
  await taken.ack();
  expect(readRow(location, id)).toMatchObject({ status: 2, attempts: 2 });
}, 60_000);

test("what takes long to get to the server is waited for, as long as it gets there", async () => {
  const { proxy, through } = await newLine();
  await using queue = new SimpleQueue<string>(through);
  await queue.put("small");
  proxy.slow(400); // so that it takes longer than a silent connection is waited for, twice
  const startedAt = performance.now();
  const { id } = await queue.put("x".repeat(8_000_000));
  expect(performance.now() - startedAt).toBeGreaterThan(16_000);
  expect(await queue.getMany(10)).toMatchObject([{ data: "small" }, { id, attempt: 1 }]);
}, 60_000);

test("a connection that is lost on this side only holds up nobody: the server keeps its transaction for a while", async () => {
  const { proxy, location, through } = await newLine();
  await using queue = new SimpleQueue(through);
  await queue.put(1);
  const sprung = proxy.cutAt("pg_current_xact_id_if_assigned", "unnoticed");
  const startedAt = performance.now();
  await queue.put(2);
  await sprung;
  expect(performance.now() - startedAt).toBeLessThan(3_000); // the server gives up after five seconds
  expect(await queue.stats()).toMatchObject({ ready: 2 });
  expect(faultsOf(location)).toEqual([]);
});
