import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { IntegrityOptions, IntegrityProgress } from "localqueue";
import { describe, expect, test } from "vitest";
import { checkIntegrity } from "../dist/storage/sqlite/integrity.js";
import { SIGNALS } from "../dist/storage/sqlite/protocol.js";
import { SideContext } from "../dist/storage/sqlite/side-context.js";
import { openDatabase } from "./support/database.ts";
import { faultsOf } from "./support/inspect.ts";
import { openQueue } from "./support/queue.ts";
import { rejection } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";

/** A queue's directory with so many jobs, which nobody has open. */
async function filled(jobs: number): Promise<string> {
  const directory = tempDirectory();
  const queue = openQueue({ location: directory });
  await queue.putMany(Array.from({ length: jobs }, (_, index) => ({ index, text: "x".repeat(100) })));
  await queue.close();
  return directory;
}

function execute(directory: string, ...statements: string[]): void {
  const database = openDatabase(directory);
  for (const sql of statements) database.exec(sql);
  database.close();
}

const EDGES = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5)
  INSERT INTO event_bus_delivery_edges SELECT 1000 + i, 1 FROM n`;

describe("a healthy file", () => {
  test("is found to be so, by a full check unless asked otherwise", async () => {
    const report = await openQueue({ location: await filled(100) }).checkIntegrity();
    expect(report).toEqual({
      schemaVersion: 1,
      mode: "full",
      maxErrors: 100,
      ok: true,
      messages: ["ok"],
      elapsedMs: expect.any(Number),
    });
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
  });

  test("is found to be so by a quick check, too", async () => {
    const report = await openQueue().checkIntegrity({ mode: "quick", maxErrors: 7 });
    expect(report).toMatchObject({ mode: "quick", maxErrors: 7, ok: true, messages: ["ok"] });
  });

  test("is found to be so while its jobs come and go", async () => {
    const queue = openQueue();
    let done = false;
    const busy = (async () => {
      while (!done) {
        await queue.putMany([1, 2, 3]);
        for (const job of await queue.getMany(2)) await job.ack();
      }
    })();
    for (let round = 0; round < 10; round++) expect((await queue.checkIntegrity()).messages).toEqual(["ok"]);
    done = true;
    await busy;
  });

  test("is told part by part", async () => {
    const told: IntegrityProgress[] = [];
    await openQueue().checkIntegrity({ onProgress: (progress) => told.push(progress) });
    const phases = ["pages", "references", "counts", "layout"];
    expect(told).toEqual(phases.map((phase, done) => ({ phase, done, total: 4 })));
  });
});

describe("what is wrong is reported", () => {
  test("in SQLite's words, where SQLite finds it", async () => {
    const directory = await filled(1);
    const insert = "INSERT INTO event_bus_executions VALUES ('an id', 'bus', 'source', NULL, 5, 1, 1)";
    execute(directory, "PRAGMA ignore_check_constraints = ON", insert);
    const { ok, messages } = await openQueue({ location: directory }).checkIntegrity();
    expect({ ok, messages }).toEqual({ ok: false, messages: ["CHECK constraint failed in event_bus_executions"] });
  });

  test("as references that lead nowhere", async () => {
    const directory = await filled(1);
    execute(directory, "PRAGMA foreign_keys = OFF", EDGES);
    const { ok, messages } = await openQueue({ location: directory }).checkIntegrity();
    expect(ok).toBe(false);
    expect(messages).toHaveLength(5);
    expect(messages[0]).toMatch(
      /^foreign key violation: table=event_bus_delivery_edges, rowid=\d+, parent=messages, fkid=\d+$/,
    );
  });

  test("up to `maxErrors`, whatever it is", async () => {
    const directory = await filled(1);
    const insert = "INSERT INTO event_bus_executions VALUES ('an id', 'bus', 'source', NULL, 5, 1, 1)";
    execute(directory, "PRAGMA ignore_check_constraints = ON", insert, "PRAGMA foreign_keys = OFF", EDGES);
    const queue = openQueue({ location: directory });
    const { messages } = await queue.checkIntegrity({ maxErrors: 3 });
    expect(messages).toHaveLength(3);
    expect(messages[0]).toMatch(/^CHECK/);
    expect(messages.slice(1).every((text) => text.startsWith("foreign key violation"))).toBe(true);
    expect((await queue.checkIntegrity({ maxErrors: 1 })).messages).toEqual([messages[0]]);
  });

  test("as counts that are not those of the jobs, which vacuum() makes anew", async () => {
    const directory = await filled(5);
    execute(directory, "UPDATE localqueue_counts SET ready = 7, acked = 1 WHERE queue = 'default'");
    const queue = openQueue({ location: directory });
    const { ok, messages } = await queue.checkIntegrity({ mode: "quick" });
    expect({ ok, messages }).toEqual({
      ok: false,
      messages: [
        'counts of queue "default": kept ready=7 processing=0 acked=1 failed=0, ' +
          "counted ready=5 processing=0 acked=0 failed=0; vacuum() makes them anew",
      ],
    });
    await queue.vacuum();
    expect((await queue.checkIntegrity()).messages).toEqual(["ok"]);
    expect(await queue.stats()).toEqual({ ready: 5, processing: 0, acked: 0, failed: 0 });
  });

  test("as counts of queues that have none, and jobs of queues that are not counted", async () => {
    const directory = await filled(1);
    execute(
      directory,
      "UPDATE localqueue_counts SET queue = 'renamed' WHERE queue = 'default'",
      "INSERT INTO localqueue_counts (queue) VALUES ('empty')",
    );
    const { messages } = await openQueue({ location: directory }).checkIntegrity();
    expect(messages).toHaveLength(2);
    expect(messages[0]).toContain('"default": kept ready=0');
    expect(messages[1]).toContain('"renamed": kept ready=1');
  });

  test("as parts of the layout that are missing", async () => {
    const directory = await filled(1);
    execute(directory, "DROP INDEX localqueue_leased", "DROP TABLE localqueue_counts");
    const context = new SideContext(directory, new Int32Array(SIGNALS), () => {});
    const { messages } = await checkIntegrity({ mode: "full", maxErrors: 100 }, context);
    context.close();
    expect(messages).toEqual([
      "layout: localqueue_leased is missing; the next write makes it anew",
      "layout: localqueue_counts is missing; the next write makes it anew",
    ]);
    await openQueue({ location: directory }).put(1);
    expect(faultsOf(directory)).toEqual([]);
  });

  test("as pages that were overwritten", async () => {
    const directory = await filled(3000);
    const file = path.join(directory, "localqueue.db");
    const bytes = readFileSync(file);
    for (let page = 40; page < 60; page++) bytes.fill(0xa5, page * 4096, page * 4096 + 4096);
    writeFileSync(file, bytes);
    const { ok, messages } = await openQueue({ location: directory }).checkIntegrity({ maxErrors: 5 });
    expect(ok).toBe(false);
    expect(messages[0]).toMatch(/^Tree \d+ page \d+: [^\n]+$/);
    expect(messages.length).toBeLessThanOrEqual(5);
  });
});

describe("a file that cannot be opened at all", () => {
  test("because it is something else", async () => {
    const directory = tempDirectory();
    writeFileSync(
      path.join(directory, "localqueue.db"),
      "not a database, but long enough to be taken for one".repeat(9),
    );
    const error = await rejection(openQueue({ location: directory }).checkIntegrity());
    expect(error).toMatchObject({ name: "StorageError", code: "NOT_A_DATABASE" });
  });

  test("because the beginning is damaged", async () => {
    const directory = await filled(100);
    const file = path.join(directory, "localqueue.db");
    const bytes = readFileSync(file);
    bytes.fill(0xa5, 100, 4096);
    writeFileSync(file, bytes);
    expect(await rejection(openQueue({ location: directory }).checkIntegrity())).toMatchObject({ code: "CORRUPT" });
  });
});

describe("misuse", () => {
  test.each([
    [{ maxErrors: 0 }, RangeError],
    [{ maxErrors: 1001 }, RangeError],
    [{ maxErrors: -1 }, RangeError],
    [{ maxErrors: 1.5 }, RangeError],
    [{ maxErrors: "5" }, TypeError],
    [{ mode: "thorough" }, RangeError],
    [{ mode: 1 }, TypeError],
    [{ onProgress: {} }, TypeError],
    [{ level: "full" }, TypeError],
    ["full", TypeError],
  ])("%j is refused", async (options, kind) => {
    await expect(openQueue().checkIntegrity(options as IntegrityOptions)).rejects.toThrow(kind);
  });

  test("a closed queue checks nothing", async () => {
    const queue = openQueue();
    await queue.close();
    expect(await rejection(queue.checkIntegrity())).toMatchObject({ code: "CLOSED" });
  });
});
