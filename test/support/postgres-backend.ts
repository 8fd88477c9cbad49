import pg from "pg";
import { STATES } from "../../dist/state.js";
import { openStorage } from "../../dist/storage/location.js";
import type { Storage, StorageSettings } from "../../dist/storage/storage.js";
import { type Backend, type Bench, STORED_COLUMNS as COLUMNS, type Edits, type StoredJob } from "./backend.ts";
import { tempLocation } from "./location.ts";

const TIMES = ["available_at", "lease_until", "created_at", "updated_at"];
const INT8 = 20;
const types = {
  getTypeParser: (id: number, format?: unknown) =>
    id === INT8 ? Number : (pg.types.getTypeParser as (id: number, format: unknown) => unknown)(id, format),
};

export const postgresBackend: Backend = {
  name: "PostgreSQL",
  open: () => Promise.resolve(new PostgresBench()),
};

/** Looks at the schema through connections of its own. */
class PostgresBench implements Bench {
  readonly #location = tempLocation();
  readonly #schema = new URL(this.#location).searchParams.get("schema") ?? "";
  readonly #storages: Storage[] = [];
  #client: Promise<pg.Client> | undefined;

  storage(queue = "default", settings: Partial<StorageSettings> = {}): Storage {
    const storage = openStorage(this.#location, { queue, fsync: undefined, ...settings });
    this.#storages.push(storage);
    return storage;
  }

  async #connect(): Promise<pg.Client> {
    const url = new URL(this.#location);
    url.search = "";
    const client = new pg.Client({ connectionString: url.href, types: types as never });
    await client.connect();
    await client.query(`SET search_path TO ${this.#schema}`);
    return client;
  }

  async #query(sql: string, values: readonly unknown[] = []): Promise<pg.QueryResultRow[]> {
    this.#client ??= this.#connect();
    return (await (await this.#client).query(sql, [...values])).rows;
  }

  async jobs(queue?: string): Promise<StoredJob[]> {
    const columns = Object.entries(COLUMNS).map(([name, sql]) => `${sql} AS "${name}"`);
    const which = "WHERE $1::text IS NULL OR queue = $1";
    const rows = await this.#query(`SELECT ${columns.join(", ")} FROM messages ${which} ORDER BY id`, [queue ?? null]);
    return rows.map(
      (row) => ({ ...row, payload: row["payload"].toString(), state: STATES[row["state"]] }) as StoredJob,
    );
  }

  async exact(id: number): Promise<unknown> {
    return (await this.#query("SELECT * FROM messages WHERE id = $1", [id]))[0];
  }

  async edit(id: number, changes: Edits): Promise<void> {
    const sets = Object.keys(changes).map((name, index) => `${COLUMNS[name as keyof Edits]} = $${index + 2}`);
    await this.#query(`UPDATE messages SET ${sets.join(", ")} WHERE id = $1`, [id, ...Object.values(changes)]);
  }

  async age(ms: number): Promise<void> {
    await this.#query(`UPDATE messages SET ${TIMES.map((column) => `${column} = ${column} - ${ms}`).join(", ")}`);
  }

  async links(): Promise<(readonly [number, number])[]> {
    const rows = await this.#query(
      "SELECT parent_message_id AS parent, child_message_id AS child FROM event_bus_delivery_edges ORDER BY 1, 2",
    );
    return rows.map(({ parent, child }) => [parent, child]);
  }

  async track(execution: string, ids: readonly number[]): Promise<void> {
    await this.#query(
      "INSERT INTO event_bus_executions VALUES ($1, 'bus', 'source', NULL, 1, 0, 0) ON CONFLICT DO NOTHING",
      [execution],
    );
    await this.#query("INSERT INTO event_bus_execution_deliveries SELECT $1, unnest($2::bigint[])", [execution, ids]);
  }

  async tracked(execution: string): Promise<number[]> {
    const sql = "SELECT message_id AS id FROM event_bus_execution_deliveries WHERE execution_id = $1 ORDER BY 1";
    return (await this.#query(sql, [execution])).map(({ id }) => id);
  }

  async remove(id: number): Promise<void> {
    await this.#query("DELETE FROM messages WHERE id = $1", [id]);
  }

  async lock(): Promise<() => Promise<void>> {
    const client = await this.#connect();
    await client.query("BEGIN");
    await client.query("LOCK TABLE messages IN SHARE ROW EXCLUSIVE MODE");
    return () => client.end(); // which rolls back
  }

  async close({ keep } = { keep: false }): Promise<void> {
    await Promise.all(this.#storages.map((storage) => storage.close()));
    await (await this.#client)?.end();
    if (keep) process.stderr.write(`Schema of the failed test: ${this.#schema}\n`);
  }
}
