import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { openStorage } from "../dist/storage/location.js";
import { Connection } from "../dist/storage/sqlite/connection.js";
import { type Database, loadDriver, type Row } from "../dist/storage/sqlite/driver.js";
import { Transitions } from "../dist/storage/sqlite/transitions.js";
import type { Storage } from "../dist/storage/storage.js";
import { event, LEASE_MS, put, take, takeOne } from "./contract/jobs.ts";
import {
  createPythonFile,
  openBare,
  PYTHON_INDEX,
  PYTHON_STATS,
  PYTHON_VERSIONS,
  type PythonVersion,
} from "./support/python-files.ts";
import { tempDirectory } from "./support/temp.ts";

const EVENT_TABLES = [
  "ingestion_checkpoints",
  "event_bus_executions",
  "event_bus_execution_deliveries",
  "event_bus_delivery_edges",
  "event_bus_execution_runtime",
];

describe.each(PYTHON_VERSIONS)("a file of Python's localqueue %s", (version) => {
  test("keeps its rows as they are when we open it, and gets what it lacks", () => {
    const directory = pythonFile(version);
    const before = dump(directory);
    openAndClose(directory);
    const after = dump(directory);
    for (const [table, rows] of Object.entries(before)) {
      const columns = Object.keys(rows[0] ?? {});
      expect({ table, rows: after[table]?.map((row) => pick(row, columns)) }).toEqual({ table, rows });
    }
    for (const row of after["messages"] ?? [])
      expect(row).toMatchObject({ releases: "integer 0", trace_context: "null NULL" });
    expect(Object.keys(after["messages"]?.[0] ?? {})).toEqual(
      expect.arrayContaining(["failure_reason", "failure_category", "dedup_key", "dedup_fingerprint"]),
    );
    expect(query(directory, "PRAGMA integrity_check")).toEqual([{ integrity_check: "ok" }]);
    expect(query(directory, "PRAGMA foreign_key_check")).toEqual([]);
  });

  test("has the same tables, columns, indexes and triggers afterwards as a new file that Python opened", () => {
    const old = pythonFile(version);
    openAndClose(old);
    const fresh = tempDirectory();
    openAndClose(fresh);
    const python = openBare(fresh);
    python.exec(PYTHON_INDEX);
    python.close();
    openAndClose(fresh);
    expect(objects(old)).toEqual(objects(fresh));
    for (const table of ["messages", "localqueue_counts", ...EVENT_TABLES]) {
      const byName = (rows: Row[]): Row[] => rows.sort((a, b) => String(a["name"]).localeCompare(String(b["name"])));
      expect({ table, columns: byName(columnsOf(old, table)) }).toEqual({
        table,
        columns: byName(columnsOf(fresh, table)),
      });
    }
  });

  test("is right away a queue to work on, with the right statistics", async () => {
    const storage = open(pythonFile(version));
    expect(await storage.stats()).toEqual(PYTHON_STATS);
    const claimed = await take(storage, 10);
    expect(claimed.map(({ id, attempt, jobId }) => ({ id, attempt, jobId }))).toEqual([
      { id: 1, attempt: 1, jobId: undefined },
      { id: 2, attempt: 2, jobId: "invoice-2" },
      { id: 5, attempt: 3, jobId: undefined },
    ]);
    expect(Buffer.from(claimed[0]?.payload ?? []).toString()).toBe('{"a": 1}');
    for (const delivery of claimed) expect(await storage.settle(delivery, { event: "ack" })).toBe("acked");
    const held = { id: 4, receipt: "4711-1790000000000000000" };
    expect(await storage.settle(held, { event: "ack" })).toBe("acked");
    expect(await put(storage, "known", { jobId: "invoice-6" })).toBe(6);
    expect(await storage.stats()).toEqual({ ready: 1, processing: 0, acked: 5, failed: 1 });
  });
});

describe("a new file", () => {
  test("has the tables of Python's localqueue 1.4.1, column for column", () => {
    const directory = tempDirectory();
    openAndClose(directory);
    const python = pythonFile("1.4.1");
    const [traceContext, releases, ...others] = columnsOf(directory, "messages").reverse();
    expect(traceContext).toMatchObject({ name: "trace_context", type: "TEXT", notnull: 0, dflt_value: null });
    expect(releases).toMatchObject({ name: "releases", type: "INTEGER", notnull: 1, dflt_value: "0" });
    expect(others.reverse()).toEqual(columnsOf(python, "messages"));
    for (const table of EVENT_TABLES) {
      expect(columnsOf(directory, table)).toEqual(columnsOf(python, table));
      const keys = `SELECT * FROM pragma_foreign_key_list('${table}')`;
      expect(query(directory, keys)).toEqual(query(python, keys));
      expect(definition(directory, table)).toBe(definition(python, table));
    }
  });

  test("has Python's indexes but for the one that slows our writes, which Python adds itself", () => {
    const directory = tempDirectory();
    openAndClose(directory);
    const python = pythonFile("1.4.1");
    const names = query(python, "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL");
    const theirs = names.map(({ name }) => String(name)).filter((name) => name !== "idx_messages_queue_status");
    expect(theirs).toHaveLength(7);
    for (const name of theirs) expect(definition(directory, name)).toBe(definition(python, name));
    expect(definition(directory, "idx_messages_queue_status")).toBeUndefined();
  });

  test("has nothing but defaulted columns, indexes, a table and triggers of ours, which Python does not notice", () => {
    const directory = tempDirectory();
    openAndClose(directory);
    const python = openBare(directory);
    python.exec(PYTHON_INDEX);
    python.close();
    openAndClose(directory);
    const theirs = new Set(objects(pythonFile("1.4.1")));
    expect(objects(directory).filter((object) => !theirs.has(object))).toEqual([
      "index localqueue_delayed on messages",
      "index localqueue_failed on messages",
      "index localqueue_leased on messages",
      "index localqueue_ready on messages",
      "table localqueue_commits on localqueue_commits",
      "table localqueue_counts on localqueue_counts",
      "trigger localqueue_count_delete on messages",
      "trigger localqueue_count_insert on messages",
      "trigger localqueue_count_update on messages",
    ]);
    expect(query(directory, "PRAGMA user_version")).toEqual([{ user_version: 0 }]);
    expect(query(directory, "PRAGMA application_id")).toEqual([{ application_id: 0 }]);
    expect(query(directory, "PRAGMA journal_mode")).toEqual([{ journal_mode: "wal" }]);
  });
});

describe("opening an up-to-date file", () => {
  test.each(["ours", "Python's"])("takes no write lock: it succeeds while somebody writes (%s)", (whose) => {
    const directory = whose === "ours" ? tempDirectory() : pythonFile("1.4.1");
    openAndClose(directory);
    const writer = openBare(directory);
    writer.exec("BEGIN IMMEDIATE");
    // A wait for the lock would end at once with BUSY.
    const connection = new Connection({ directory, driver: loadDriver(), cancelled: () => true });
    expect(new Transitions(connection, Date.now).look("default").ready).toBe(whose !== "ours");
    connection.close();
    writer.exec("ROLLBACK");
    writer.close();
  });

  test("changes nothing in it", () => {
    const directory = pythonFile("1.3.0");
    openAndClose(directory);
    const before = hash(directory);
    openAndClose(directory);
    expect(hash(directory)).toBe(before);
  });
});

describe("an index of ours that somebody dropped", () => {
  const OURS = ["ready", "delayed", "leased", "failed"].map((name) => `localqueue_${name}`);

  test.each([...OURS, "idx_messages_job_id", "idx_messages_dedup_key"])(
    "(%s) is made anew, and every operation goes on",
    async (name) => {
      const directory = tempDirectory();
      const storage = open(directory);
      const waiting = storage.claim({ limit: 1, leaseMs: LEASE_MS });
      await put(open(directory, "other"));
      const database = openBare(directory);
      const calls = [
        () => put(storage),
        () => waiting,
        () => put(storage, "known", { jobId: "job" }),
        () => put(storage, "known", { jobId: "job" }),
        () => takeOne(storage),
        () => storage.reclaim(),
        () => take(storage),
        () => storage.stats(),
        () => storage.dispatch([event(["bus"], { identity: { key: "k", fingerprint: "f" } })]),
        () => storage.dispatch([event(["bus"], { identity: { key: "k", fingerprint: "f" } })]),
        () => put(storage, "delayed", { delayMs: 20 }),
        () => storage.claim({ limit: 1, leaseMs: 20 }),
        () => storage.claim({ limit: 1, leaseMs: LEASE_MS }),
      ];
      for (const call of calls) {
        database.exec(`DROP INDEX IF EXISTS ${name}`);
        await call();
      }
      await put(storage);
      expect(definition(directory, name)).toMatch(/^CREATE/);
      expect(query(directory, "SELECT count(*) AS jobs FROM messages WHERE queue = 'default'")).toEqual([{ jobs: 4 }]);
      expect(query(directory, "PRAGMA integrity_check")).toEqual([{ integrity_check: "ok" }]);
      database.close();
    },
  );
});

describe("a file that is not for us is refused and stays as it is:", () => {
  async function expectRefused(directory: string, code: string): Promise<void> {
    const file = path.join(directory, "localqueue.db");
    const before = fs.readFileSync(file);
    const storage = open(directory);
    for (const call of [() => put(storage), () => take(storage), () => storage.stats()]) {
      await expect(call()).rejects.toMatchObject({ code, outcome: "failed", message: expect.stringContaining(file) });
    }
    await storage.close();
    expect(fs.readFileSync(file).equals(before)).toBe(true);
    expect(fs.readdirSync(directory)).toEqual(["localqueue.db"]);
  }

  test.each(["a new layout", "Python's layout"])("a newer version wrote it (%s)", async (layout) => {
    const directory = tempDirectory();
    if (layout === "Python's layout") createPythonFile(directory, "1.4.1");
    const database = openBare(directory);
    database.exec("CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, body); PRAGMA user_version = 1");
    database.close();
    await expectRefused(directory, "NEWER_SCHEMA");
  });

  test("its table of messages is somebody else's", async () => {
    const directory = tempDirectory();
    const database = openBare(directory);
    database.exec("CREATE TABLE messages (id INTEGER PRIMARY KEY, sender TEXT, body TEXT)");
    database.exec("INSERT INTO messages VALUES (1, 'ann', 'hello')");
    database.close();
    await expectRefused(directory, "NOT_A_DATABASE");
  });

  test("its texts are kept in UTF-16, in which payloads would be stored, too", async () => {
    const directory = tempDirectory();
    const database = openBare(directory);
    database.exec("PRAGMA encoding = 'UTF-16le'");
    database.exec("CREATE TABLE another (x)");
    database.close();
    await expectRefused(directory, "BAD_LOCATION");
  });

  test.each([
    ["random bytes", crypto.randomBytes(10_000)],
    ["a text", Buffer.from("Dear diary,\n".repeat(20))],
    ["a few bytes", Buffer.from("hello")],
  ])("it is no database but %s", async (_, bytes) => {
    const directory = tempDirectory();
    fs.writeFileSync(path.join(directory, "localqueue.db"), bytes);
    await expectRefused(directory, "NOT_A_DATABASE");
  });

  test("an empty file, however, is as good as none", async () => {
    const directory = tempDirectory();
    fs.writeFileSync(path.join(directory, "localqueue.db"), "");
    expect(await put(open(directory))).toBe(1);
  });
});

function pythonFile(version: PythonVersion): string {
  const directory = tempDirectory();
  createPythonFile(directory, version);
  return directory;
}

function open(directory: string, queue = "default"): Storage {
  const storage = openStorage(directory, { queue, fsync: undefined });
  onTestFinished(() => storage.close());
  return storage;
}

/** Opens the file as an engine does. */
function openAndClose(directory: string): void {
  const connection = new Connection({ directory, driver: loadDriver() });
  connection.close();
}

function query(directory: string, sql: string): Row[] {
  const database = openBare(directory);
  try {
    return database.prepare(sql).all();
  } finally {
    database.close();
  }
}

function columnsOf(directory: string, table: string): Row[] {
  return query(directory, `SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info('${table}')`);
}

function objects(directory: string): string[] {
  const rows = query(directory, "SELECT type, name, tbl_name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'");
  return rows.map(({ type, name, tbl_name: table }) => `${type} ${name} on ${table}`).sort();
}

/** The SQL of an object, however it is broken into lines. */
function definition(directory: string, name: string): string | undefined {
  const [row] = query(directory, `SELECT sql FROM sqlite_schema WHERE name = '${name}'`);
  return row === undefined ? undefined : String(row["sql"]).replaceAll(/\s+/g, " ");
}

/** Every row of every table of Python's, with types. */
function dump(directory: string): { [table: string]: Row[] } {
  const database = openBare(directory);
  try {
    const names = ["messages", ...EVENT_TABLES].filter((table) => exists(database, table));
    return Object.fromEntries(names.map((table) => [table, rowsOf(database, table)]));
  } finally {
    database.close();
  }
}

function exists(database: Database, table: string): boolean {
  return database.prepare("SELECT 1 FROM sqlite_schema WHERE name = :table").all({ table }).length > 0;
}

function rowsOf(database: Database, table: string): Row[] {
  const columns = database.prepare(`SELECT name FROM pragma_table_info('${table}')`).all();
  const exact = columns.map(({ name }) => `typeof(${name}) || ' ' || quote(${name}) AS ${name}`);
  return database.prepare(`SELECT ${exact.join(", ")} FROM ${table} ORDER BY 1`).all();
}

function pick(row: Row, columns: readonly string[]): Row {
  return Object.fromEntries(columns.map((name) => [name, row[name] ?? null]));
}

function hash(directory: string): string {
  return crypto
    .createHash("sha256")
    .update(fs.readFileSync(path.join(directory, "localqueue.db")))
    .digest("hex");
}
