import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { STATES } from "../../dist/state.js";
import { openStorage } from "../../dist/storage/location.js";
import { type Database, loadDriver, type Row } from "../../dist/storage/sqlite/driver.js";
import type { Storage, StorageSettings } from "../../dist/storage/storage.js";
import { type Backend, type Bench, type Edits, STORED_COLUMNS, type StoredJob } from "./backend.ts";

const COLUMNS = { ...STORED_COLUMNS, payload: "CAST(payload AS TEXT)" };
const TIMES = ["available_at", "lease_until", "created_at", "updated_at"];

export const sqliteBackend: Backend = {
  name: "SQLite",
  open: () => Promise.resolve(new SqliteBench()),
};

/** Looks at the database through a connection of its own, which shares the library with the engine under test. */
class SqliteBench implements Bench {
  readonly #directory = fs.mkdtempSync(path.join(os.tmpdir(), "localqueue-"));
  readonly #storages: Storage[] = [];
  #db: Database | undefined;

  storage(queue = "default", settings: Partial<StorageSettings> = {}): Storage {
    const storage = openStorage(this.#directory, { queue, fsync: undefined, ...settings });
    this.#storages.push(storage);
    return storage;
  }

  get #sql(): Database {
    if (this.#db === undefined) {
      this.#db = loadDriver().open(path.join(this.#directory, "localqueue.db"));
      this.#db.exec("PRAGMA busy_timeout = 5000; PRAGMA synchronous = OFF");
    }
    return this.#db;
  }

  async jobs(queue?: string): Promise<StoredJob[]> {
    const columns = Object.entries(COLUMNS).map(([name, sql]) => `${sql} AS ${name}`);
    const which = queue === undefined ? "" : "WHERE queue = :queue";
    const rows = this.#sql.prepare(`SELECT ${columns.join(", ")} FROM messages ${which} ORDER BY id`);
    return rows.all({ queue: queue ?? null }).map(toStoredJob);
  }

  async exact(id: number): Promise<unknown> {
    const names = this.#sql.prepare("SELECT name FROM pragma_table_info('messages')").all();
    const columns = names.map(({ name }) => `typeof(${name}) || ' ' || quote(${name}) AS ${name}`);
    return this.#sql.prepare(`SELECT ${columns.join(", ")} FROM messages WHERE id = :id`).get({ id });
  }

  async edit(id: number, changes: Edits): Promise<void> {
    const sets = Object.keys(changes).map((name) => `${COLUMNS[name as keyof Edits]} = :${name}`);
    this.#sql.prepare(`UPDATE messages SET ${sets.join(", ")} WHERE id = :id`).run({ ...changes, id });
  }

  async age(ms: number): Promise<void> {
    const sets = TIMES.map((column) => `${column} = ${column} - :ms`);
    this.#sql.prepare(`UPDATE messages SET ${sets.join(", ")}`).run({ ms });
  }

  async links(): Promise<(readonly [number, number])[]> {
    const sql = `SELECT parent_message_id AS parent, child_message_id AS child FROM event_bus_delivery_edges
      ORDER BY parent, child`;
    const rows = this.#sql.prepare(sql).all();
    return rows.map(({ parent, child }) => [parent as number, child as number]);
  }

  async track(execution: string, ids: readonly number[]): Promise<void> {
    this.#sql
      .prepare("INSERT OR IGNORE INTO event_bus_executions VALUES (:execution, 'bus', 'source', NULL, 1, 0, 0)")
      .run({ execution });
    const add = this.#sql.prepare("INSERT INTO event_bus_execution_deliveries VALUES (:execution, :id)");
    for (const id of ids) add.run({ execution, id });
  }

  async tracked(execution: string): Promise<number[]> {
    const sql =
      "SELECT message_id AS id FROM event_bus_execution_deliveries WHERE execution_id = :execution ORDER BY id";
    return this.#sql
      .prepare(sql)
      .all({ execution })
      .map(({ id }) => id as number);
  }

  async remove(id: number): Promise<void> {
    this.#sql.prepare("DELETE FROM messages WHERE id = :id").run({ id });
  }

  async lock(): Promise<() => Promise<void>> {
    this.#sql.exec("BEGIN IMMEDIATE");
    return async () => this.#sql.exec("ROLLBACK");
  }

  async close({ keep } = { keep: false }): Promise<void> {
    await Promise.all(this.#storages.map((storage) => storage.close()));
    this.#db?.close();
    if (keep) process.stderr.write(`Kept for inspection: ${this.#directory}\n`);
    else fs.rmSync(this.#directory, { recursive: true, force: true });
  }
}

function toStoredJob(row: Row): StoredJob {
  return { ...row, state: STATES[row["state"] as number] } as unknown as StoredJob;
}
