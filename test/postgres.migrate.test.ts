import { readdirSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { EnqueueItem, Reject, type SimpleQueue, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { BusTopology, defineEvent } from "../dist/bus/index.js";
import type { Row } from "../dist/storage/sqlite/driver.js";
import { IDLE, openBus } from "./support/bus.ts";
import { Cli, type CliResult, runCli } from "./support/cli.ts";
import { openDatabase, openFile } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { createPythonFile, openBare } from "./support/python-files.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";

const TABLES = [
  "messages",
  "event_bus_executions",
  "event_bus_execution_deliveries",
  "event_bus_delivery_edges",
  "event_bus_execution_runtime",
  "ingestion_checkpoints",
];

const migrate = (from: string, to: string, ...more: string[]): Promise<CliResult> =>
  runCli(["migrate", from, to, ...more]);

/** All that a directory holds, value for value, with numbers as their digits. */
function everythingIn(directory: string): { readonly [table: string]: readonly Row[] } {
  const database = openFile(directory);
  try {
    const rowsOf = (table: string): Row[] => {
      const columns = database.prepare(`SELECT name FROM pragma_table_info('${table}')`).all();
      const values = columns.map(({ name }) => `quote(${name}) AS ${name}`).sort();
      return database
        .prepare(`SELECT ${values.join(", ")} FROM ${table} ORDER BY ${values.map((_, index) => index + 1).join(", ")}`)
        .all();
    };
    const highest = database.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").all();
    return { ...Object.fromEntries(TABLES.map((table) => [table, rowsOf(table)])), highest };
  } finally {
    database.close();
  }
}

/** Names of tables that a migration has left. */
function leftIn(location: string): unknown[] {
  const database = openDatabase(location);
  try {
    const tables = location.startsWith("postgres")
      ? "pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'localqueue_migrati%'"
      : "(SELECT name AS tablename FROM sqlite_schema) WHERE tablename LIKE 'localqueue_migrati%'";
    const found = database.prepare(`SELECT tablename FROM ${tables}`).all();
    return found.map(({ tablename }) => tablename);
  } finally {
    database.close();
  }
}

/** A directory with jobs in all states but with a worker, two queues and a bus. */
async function usedDirectory(): Promise<string> {
  const location = tempDirectory();
  const queue = openQueue<unknown>({ location, name: "emails" });
  const [first] = await queue.putMany(["removed", { text: "ä\u{1f600}\\", list: [1.5, null] }, "again", "rejected"]);
  await queue.remove(first?.id ?? 0);
  await queue.putMany([
    new EnqueueItem("later", { delayMs: 86_400_000, jobId: "later-1" }),
    new EnqueueItem("never", { delayMs: 0, jobId: "never-1", maxRetries: 0 }),
  ]);
  const worker = new Worker(queue, ({ data }) => {
    if (data === "again") throw new Error("no connection\0 at all");
    if (data === "rejected") throw new Reject("no such address", { category: "address" });
    if (data === "never") throw new TypeError("a bug");
  });
  worker.on("error", () => {});
  worker.on("job:failed", () => {});
  while (await worker.runOnce());
  const other = openQueue<Uint8Array>({ location, name: "bytes", serializer: { encode: (b) => b, decode: (b) => b } });
  await other.putMany([new Uint8Array(0), new Uint8Array([0, 255, 10]), new Uint8Array(5 * 1024 * 1024).fill(7)]);
  await other.put(new Uint8Array([1]));

  const Created = defineEvent("user.created", z.object({ userId: z.string() }), { identity: ["userId"] });
  const Mailed = defineEvent<{ userId: string }>("user.mailed");
  const topology = new BusTopology({ email: [Created], audit: [Created, Mailed] });
  const bus = openBus({ location, name: "app", topology });
  await bus.dispatchMany([Created({ userId: "1" }), Created({ userId: "2" })]);
  bus.subscription("email").handler(Created, (event) => Mailed.from(event, event.data));
  await bus.runSubscription("email", IDLE);
  await Promise.all([queue.close(), other.close(), bus.close()]);
  return location;
}

async function fill(queue: SimpleQueue<object>, count: number): Promise<void> {
  for (let from = 0; from < count; from += 1000) {
    await queue.putMany(
      Array.from({ length: 1000 }, (_, index) => {
        const n = from + index;
        const options = { jobId: `job-${n}`, delayMs: n % 10 === 0 ? 3_600_000 : 0 };
        return new EnqueueItem({ n, text: "x".repeat(n % 400) }, options);
      }),
    );
  }
}

describe("a directory is moved to PostgreSQL, and back", () => {
  test("with all that is stored of each job, to the last bit", async () => {
    const [directory, back, server] = [await usedDirectory(), tempDirectory(), tempLocation()];
    const there = await migrate(directory, server);
    expect(there).toMatchObject({ code: 0, stderr: "" });
    expect(there.stdout).toContain("15 jobs moved from");
    expect(there.stdout).toContain("all counts agree");
    expect(await migrate(server, back)).toMatchObject({ code: 0, stderr: "" });
    const [before, after] = [everythingIn(directory), everythingIn(back)];
    // The one thing that PostgreSQL cannot hold: a NUL, which a remark can do without.
    const remarks = before["messages"]?.map((row) => String(row["last_error"]));
    expect(remarks?.filter((text) => text.includes("no connection"))).toHaveLength(1);
    const mended = (rows: readonly Row[] = []): Row[] =>
      rows.map((row) => ({
        ...row,
        last_error: String(row["last_error"]).includes("no connection") ? "" : (row["last_error"] as string),
      }));
    expect({ ...after, messages: mended(after["messages"]) }).toEqual({
      ...before,
      messages: mended(before["messages"]),
    });
    expect(before["event_bus_delivery_edges"]).toHaveLength(2);
    expect((await runCli(["check", back])).code).toBe(0);
  });

  test("and the jobs go on there: by id, jobId, time and cause", async () => {
    const [directory, server] = [await usedDirectory(), tempLocation()];
    await migrate(directory, server);
    const [old, now] = [directory, server].map((location) => openQueue<unknown>({ location, name: "emails" }));
    expect(await now?.stats()).toEqual(await old?.stats());
    expect(await now?.listFailed()).toEqual(await old?.listFailed());
    expect(await now?.find({ jobId: "later-1" })).toEqual(await old?.find({ jobId: "later-1" }));
    expect(await now?.put("later", { jobId: "later-1" })).toMatchObject({ inserted: false });
    const { id } = (await now?.put("new")) ?? { id: 0 };
    expect(id).toBeGreaterThan(Number(everythingIn(directory)["highest"]?.[0]?.["seq"]));
    expect(await now?.retryFailed({ category: "address" })).toBe(1);
    const bytes = openQueue<Uint8Array>({
      location: server,
      name: "bytes",
      serializer: { encode: (b) => b, decode: (b) => b },
    });
    const jobs = await bytes.getMany(10);
    expect(jobs.map(({ data }) => data.length)).toEqual([0, 3, 5 * 1024 * 1024, 1]);
    for (const job of jobs) await job.ack();
    expect(await bytes.stats()).toEqual({ ready: 0, processing: 0, acked: 4, failed: 0 });
  });

  test("also one that the Python package wrote, with its executions", async () => {
    const [directory, back, server] = [tempDirectory(), tempDirectory(), tempLocation()];
    createPythonFile(directory, "1.4.1");
    const database = openBare(directory);
    database.exec(
      `UPDATE messages SET lease_until = 1 WHERE status = 1;
      UPDATE messages SET max_attempts = 9223372036854775807 WHERE id = 1`,
    );
    database.close();
    expect(await migrate(directory, server)).toMatchObject({ code: 0, stderr: "" });
    expect(await migrate(server, back)).toMatchObject({ code: 0, stderr: "" });
    expect(everythingIn(back)).toEqual(everythingIn(directory));
    const first = everythingIn(back)["messages"]?.find(({ id }) => id === "1");
    expect(first).toMatchObject({ max_attempts: "9223372036854775807" });
    expect(everythingIn(back)["event_bus_execution_runtime"]).toHaveLength(1);
  });

  test("an empty one as well", async () => {
    const [directory, server] = [tempDirectory(), tempLocation()];
    const queue = openQueue({ location: directory });
    await queue.stats();
    await queue.close();
    expect((await migrate(directory, server)).stdout).toContain("0 jobs moved from");
    expect(await openQueue({ location: server }).put(1)).toEqual({ id: 1, inserted: true });
  });

  test("and tells programs what came of it", async () => {
    const [directory, server] = [await usedDirectory(), tempLocation()];
    const { stdout } = await migrate(directory, server, "--json");
    expect(JSON.parse(stdout)).toEqual({
      queues: expect.arrayContaining([{ queue: "bytes", ready: 4, processing: 0, acked: 0, failed: 0 }]),
      jobs: 15,
      wasDone: false,
      elapsedMs: expect.any(Number),
    });
  });
});

describe("whoever is killed in the middle can be started again", () => {
  test.each(["to PostgreSQL", "to a directory"])(
    "with 20,000 jobs, %s: nothing is lost, nothing is there twice",
    async (way) => {
      const original = tempDirectory();
      const queue = openQueue<object>({ location: original });
      await fill(queue, 20_000);
      await queue.close();
      const database = openFile(original);
      database.exec(
        `UPDATE messages SET status = 2, attempts = 1 WHERE id % 7 = 0;
      UPDATE messages SET status = 3, attempts = 4, failure_reason = 'rejected', failure_category = 'c' WHERE id % 7 = 1`,
      );
      database.close();
      const server = tempLocation();
      const back = tempDirectory();
      const [from, to] = way === "to PostgreSQL" ? [original, server] : [server, back];
      if (from === server) await migrate(original, server);

      const delays: number[] = [];
      for (;;) {
        const attempt = new Cli(["migrate", from, to]);
        const delayMs = Math.random() * 800 * (delays.length + 1);
        delays.push(Math.round(delayMs));
        await Promise.race([attempt.ended, sleep(delayMs)]);
        if (!attempt.hasEnded) {
          attempt.kill("SIGKILL");
          await attempt.ended;
          continue;
        }
        expect(await attempt.ended, `${delays}`).toMatchObject({ code: 0, stderr: "" });
        break;
      }
      expect((await migrate(from, to)).stdout).toContain("has been moved to");
      if (to === server) await migrate(server, back);
      expect(everythingIn(back), `${delays}`).toEqual(everythingIn(original));
      expect(leftIn(to)).toEqual(["localqueue_migrations"]);
      const counts = openQueue({ location: to });
      expect(await counts.stats(), `${delays}`).toEqual({ ready: 14_285, processing: 0, acked: 2857, failed: 2858 });
      expect((await runCli(["check", back])).code).toBe(0);
    },
    120_000,
  );

  test("and what has changed in the meantime is moved as it is now", async () => {
    const [directory, back, server] = [tempDirectory(), tempDirectory(), tempLocation()];
    const queue = openQueue<object>({ location: directory });
    await fill(queue, 10_000);
    await queue.close();
    await halfMoved(directory, server);
    const late = openQueue<object>({ location: directory });
    await (await late.get()).ack();
    await late.put({ n: 10_000 });
    await late.close();
    expect(await migrate(directory, server)).toMatchObject({ code: 0, stderr: "" });
    await migrate(server, back);
    expect(everythingIn(back)).toEqual(everythingIn(directory));
  });

  test("and another directory of the same name is not taken for what was moved", async () => {
    const [directory, server] = [tempDirectory(), tempLocation()];
    const put = async (job: string): Promise<void> => {
      const queue = openQueue<string>({ location: directory });
      await queue.put(job);
      await queue.close();
    };
    await put("old");
    expect((await migrate(directory, server)).stdout).toContain("1 job moved");
    expect((await migrate(directory, server)).stdout).toContain("nothing was done");
    rmSync(directory, { recursive: true });
    await put("new");
    expect((await migrate(directory, server)).stderr).toContain('another row in messages with id "1"');
    const there = openQueue<string>({ location: server });
    await (await there.get()).ack();
    await there.purge({ olderThanMs: 0 });
    expect((await migrate(directory, server)).stdout).toContain("1 job moved");
    expect((await there.get()).data).toBe("new");
  });

  test("with Ctrl-C, which says how to go on", async () => {
    const [directory, server] = [tempDirectory(), tempLocation()];
    const queue = openQueue<object>({ location: directory });
    await fill(queue, 10_000);
    await queue.close();
    const { code, stderr } = await halfMoved(directory, server);
    expect(code).toBe(1);
    expect(stderr).toContain("localqueue: Interrupted: nothing has been moved. To go on, type localqueue migrate ");
    expect(await openQueue({ location: server }).stats()).toMatchObject({ ready: 0 });
    expect((await migrate(directory, server)).stdout).toContain("10,000 jobs moved from");
  });
});

describe("nothing is moved", () => {
  test("while a job is being processed", async () => {
    const [directory, server] = [tempDirectory(), tempLocation()];
    const queue = openQueue({ location: directory });
    await queue.put(1);
    const job = await queue.get();
    const refused = await migrate(directory, server);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(
      "BUSY: A job is being processed. Stop all workers, or wait until their leases end",
    );
    await job.ack();
    expect(await migrate(directory, server)).toMatchObject({ code: 0 });
    await openQueue({ location: server }).put(2);
    const other = openQueue({ location: server });
    await other.get();
    expect((await migrate(server, tempDirectory())).stderr).toContain("BUSY: A job is being processed.");
  });

  test("to where other jobs have these ids, or are known by the same jobId", async () => {
    const [directory, server] = [tempDirectory(), tempLocation()];
    const [queue, there] = [openQueue({ location: directory }), openQueue({ location: server })];
    await queue.putMany([1, new EnqueueItem(2, { jobId: "invoice-2" })]);
    await queue.close();
    await there.put("mine");
    const refused = await migrate(directory, server);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(
      'BAD_LOCATION: The target has another row in messages with id "1". Nothing was moved',
    );
    expect(await there.stats()).toMatchObject({ ready: 1 });
    await there.remove(1);
    for (let n = 0; n < 3; n++) await there.put(n, { jobId: n === 2 ? "invoice-2" : undefined });
    for (const id of [2, 3]) await there.remove(id);
    expect((await migrate(directory, server)).stderr).toContain(
      'with queue "default", job_id "invoice-2". Nothing was',
    );
    await there.remove(4);
    await there.put("mine");
    expect(await migrate(directory, server)).toMatchObject({ code: 0, stderr: "" });
    expect(await there.stats()).toMatchObject({ ready: 3 });
  });

  test("while a migration from elsewhere is not finished, unless that is to be forgotten", async () => {
    const [one, other, server] = [tempDirectory(), tempDirectory(), tempLocation()];
    for (const location of [one, other]) {
      const queue = openQueue<object>({ location });
      await fill(queue, 10_000);
      await queue.close();
    }
    await halfMoved(one, server);
    const refused = await migrate(other, server);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(`BAD_LOCATION: A migration from ${one}/localqueue.db is not finished.`);
    expect(await migrate(other, server, "--restart")).toMatchObject({ code: 0, stderr: "" });
  });

  test.each<[string, () => [string, string], string]>([
    ["from where nothing is", () => [`${tempDirectory()}/none`, tempLocation()], "it has no localqueue.db."],
    [
      "from a schema where nothing is",
      () => [tempLocation(), tempDirectory()],
      "it has no tables of localqueue in its",
    ],
    ["to nowhere", () => ["./data", ""], "Say where to: localqueue migrate ./data postgres://…"],
    ["to what is no location", () => ["./data", "mysql://db"], "or a postgres: URL, got a mysql: URL."],
  ])("%s", async (_, locations, message) => {
    const [from, to] = locations();
    const cwd = tempDirectory();
    const { code, stderr } = await runCli(["migrate", from, to].filter(Boolean), { cwd });
    expect(code).not.toBe(0);
    expect(stderr).toContain(message);
    expect(readdirSync(cwd)).toEqual([]);
  });

  test("onto itself", async () => {
    const directory = await usedDirectory();
    expect((await migrate(directory, `${directory}/../${directory.split("/").at(-1)}`)).stderr).toContain(
      "BAD_LOCATION: Both locations are the same",
    );
  });

  test("of which PostgreSQL cannot hold the name", async () => {
    const [directory, server] = [tempDirectory(), tempLocation()];
    const queue = openQueue({ location: directory });
    await queue.put(1);
    await queue.close();
    const database = openFile(directory);
    database.exec("UPDATE messages SET job_id = 'a' || char(0)");
    database.close();
    const { code, stderr } = await migrate(directory, server);
    expect(code).toBe(1);
    expect(stderr).toContain(
      'BAD_LOCATION: The row with id "1" has a NUL in its job_id, which PostgreSQL cannot hold.',
    );
  });
});

/** A migration that was interrupted after it had written something. */
async function halfMoved(from: string, to: string): Promise<CliResult> {
  const attempt = new Cli(["migrate", from, to]);
  const watched = async (): Promise<boolean> => leftIn(to).some((name) => String(name).includes("slices"));
  while (!attempt.hasEnded && !(await watched().catch(() => false))) await sleep(5);
  attempt.kill("SIGINT");
  return attempt.ended;
}
