import { type Job, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import type { Row } from "../dist/storage/sqlite/driver.js";
import { listen, listenToAll } from "./support/channels.ts";
import { openDatabase } from "./support/database.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { Program } from "./support/program.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";
import { drained, start } from "./support/worker.ts";

const ADDED = { name: "trace_context", type: "TEXT", needed: 0, given: null };

/** A process of the previous version on the file, which it creates if need be. */
async function previousVersion(directory: string): Promise<Program> {
  const program = new Program("previous-version.mjs", { directory });
  await program.hears("open");
  return program;
}

async function ask(program: Program, verb: string, ...args: unknown[]): Promise<unknown> {
  program.tell({ verb, args });
  return (await program.hears(verb))["result"];
}

function columnsOf(directory: string, table = "messages"): Row[] {
  return select(
    directory,
    `SELECT name, type, "notnull" AS needed, dflt_value AS given FROM pragma_table_info('${table}')`,
  );
}

describe("this version and the previous one on one file", () => {
  test("work side by side while one replaces the other: every job is done once", async () => {
    const directory = tempDirectory();
    const old = await Promise.all([previousVersion(directory), previousVersion(directory)]);
    for (const [n, program] of old.entries()) program.tell({ verb: "bustle", args: [`old ${n}`] });
    for (const program of old) await program.hears("bustling");
    expect(columnsOf(directory)).not.toContainEqual(ADDED);

    // The new version comes in while the old one writes.
    const queue = openQueue<string>({ location: directory });
    const put: string[] = [];
    const done: string[] = [];
    const worker = new Worker(queue, (job: Job<string>) => void done.push(job.data), { concurrency: 4 });
    void start(worker);
    while (done.length < 200) {
      put.push(`new ${put.length}`);
      await queue.put(put.at(-1) as string);
    }
    expect(columnsOf(directory)).toContainEqual(ADDED);

    for (const program of old) {
      program.tell({ verb: "stop" });
      const stopped = await program.hears("stopped");
      put.push(...(stopped["put"] as string[]));
      const doneThere = stopped["done"] as string[];
      expect(doneThere.length).toBeGreaterThan(0);
      done.push(...doneThere);
      await program.end();
    }
    await drained(queue);
    await until(() => done.length >= put.length);
    expect(done.sort()).toEqual(put.sort());
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: put.length, failed: 0 });
    expect(faultsOf(directory)).toEqual([]);
  });

  test("hand jobs to each other, and one that passes through the previous version keeps its context", async () => {
    const directory = tempDirectory();
    const old = await previousVersion(directory);
    listen("localqueue:put", (message) => {
      message.context = "trace";
    });
    const claims = listenToAll("localqueue:claim");
    const queue = openQueue({ location: directory });
    await ask(old, "put", "from the old one");
    const job = await queue.get();
    await queue.put("from the new one");
    const held = await ask(old, "claim");
    expect([job.data, held]).toMatchObject(["from the old one", { id: 2, attempt: 1, data: "from the new one" }]);
    await job.ack();
    expect(await ask(old, "nack", held)).toBe(1);
    await (await queue.get()).nack();
    expect(await ask(old, "ack", await ask(old, "claim"))).toBe(1);
    expect(claims.map(([, message]) => message)).toMatchObject([
      { id: 1, attempt: 1, context: undefined },
      { id: 2, attempt: 2, context: "trace" },
    ]);
    expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 2, failed: 0 });
    expect(faultsOf(directory)).toEqual([]);
  });

  test("can go back: the previous version works alone on a file that this one made, and then this one again", async () => {
    const directory = tempDirectory();
    const first = openQueue({ location: directory });
    await first.put("of this version");
    await first.close();
    const old = await previousVersion(directory);
    const held = await ask(old, "claim");
    expect(held).toMatchObject({ data: "of this version" });
    expect(await ask(old, "ack", held)).toBe(1);
    await ask(old, "put", "of the previous version");
    await old.end();
    const again = openQueue({ location: directory });
    expect((await again.get()).data).toBe("of the previous version");
    expect(await again.stats()).toEqual({ ready: 0, processing: 1, acked: 1, failed: 0 });
    expect(faultsOf(directory)).toEqual([]);
  });
});

test("what a later version may add to the file is left alone, and in nobody's way", async () => {
  const directory = tempDirectory();
  const queue = openQueue({ location: directory });
  await queue.put("before");
  const later = openDatabase(directory);
  later.exec(`
    ALTER TABLE messages ADD COLUMN later_number INTEGER NOT NULL DEFAULT 7;
    ALTER TABLE messages ADD COLUMN later_text TEXT;
    ALTER TABLE localqueue_counts ADD COLUMN later_count INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE localqueue_later (id INTEGER PRIMARY KEY, what TEXT) STRICT;
    CREATE INDEX localqueue_later_index ON messages(queue, later_number) WHERE later_text IS NOT NULL;
    UPDATE messages SET later_number = 8, later_text = 'kept';
    INSERT INTO localqueue_later VALUES (1, 'kept')`);
  later.close();
  for (const process of [queue, openQueue({ location: directory })]) {
    await process.put("after");
    await (await process.get()).nack();
    await (await process.get()).release();
    const job = await process.get();
    await job.extendLease(1_000);
    await job.ack();
    await process.reclaimExpiredLeases();
  }
  expect(await queue.stats()).toEqual({ ready: 1, processing: 0, acked: 2, failed: 0 });
  expect(select(directory, "SELECT id, later_number, later_text FROM messages ORDER BY id")).toEqual([
    { id: 1, later_number: 8, later_text: "kept" },
    { id: 2, later_number: 7, later_text: null },
    { id: 3, later_number: 7, later_text: null },
  ]);
  expect(select(directory, "SELECT what FROM localqueue_later")).toEqual([{ what: "kept" }]);
  expect(faultsOf(directory)).toEqual([]);
});

test("all of the previous layout is still there, and the columns that came since are nullable or have a default", async () => {
  const previous = tempDirectory();
  await (await previousVersion(previous)).end();
  const current = tempDirectory();
  await openQueue({ location: current }).stats();
  for (const table of ["messages", "localqueue_counts"]) {
    const before = columnsOf(previous, table);
    const now = columnsOf(current, table);
    expect(now.slice(0, before.length)).toEqual(before);
    const unset = now.slice(before.length).filter(({ needed, given }) => needed === 1 && given === null);
    expect(unset).toEqual([]);
  }
  const objects = (directory: string): unknown[] =>
    select(directory, "SELECT name, type, iif(name = 'messages', '', sql) AS sql FROM sqlite_schema ORDER BY name");
  expect(objects(current)).toEqual(expect.arrayContaining(objects(previous)));
  expect(select(current, "PRAGMA user_version")).toEqual([{ user_version: 0 }]);
});
