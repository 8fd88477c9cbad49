import type { ColumnType, FoundRow, TransferDatabase, TransferTable, Value, WholeRow } from "../transfer.ts";
import { Connection } from "./connection.ts";
import { type Database, loadDriver, toStorageError } from "./driver.ts";
import { recount } from "./schema.ts";

/** How long to wait for whoever writes. */
const BUSY_MS = 10_000;

const NATIVE: { readonly [T in ColumnType]: string } = { integer: "INTEGER", text: "TEXT", bytes: "BLOB" };

/** A file that whole rows are read from or written to. SQLite runs on this thread: nothing else is to be done there. */
export class TransferFile implements TransferDatabase {
  readonly name: string;
  readonly #db: Database;

  /** Brings the file to the current layout. */
  constructor(directory: string) {
    const driver = loadDriver();
    const connection = new Connection({ directory, driver });
    connection.close();
    this.name = connection.file;
    this.#db = driver.open(connection.file);
    this.#db.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
    this.#db.exec("PRAGMA synchronous = FULL");
    this.#db.exec("PRAGMA fullfsync = ON");
    this.#db.exec("PRAGMA foreign_keys = ON");
  }

  /** Every one keeps others from writing. */
  async transaction<T>(work: () => Promise<T>): Promise<T> {
    const db = this.#db;
    try {
      db.exec("BEGIN IMMEDIATE");
      const result = await work();
      db.exec("COMMIT");
      return result;
    } catch (error) {
      if (db.inTransaction) db.exec("ROLLBACK");
      throw isOfSqlite(error) ? toStorageError(error, this.name) : error;
    }
  }

  async query(sql: string, values: readonly Value[] = []): Promise<readonly FoundRow[]> {
    const statement = this.#db.prepare(sql);
    const parameters = Object.fromEntries(values.map((value, index) => [`p${index + 1}`, value]));
    if (sql.startsWith("SELECT")) return statement.all(parameters);
    statement.run(parameters);
    return [];
  }

  read(column: string, type: ColumnType): string {
    // Other programs may have stored a fraction.
    const native = type === "integer" ? `CAST(${column} AS INTEGER)` : column;
    return `CAST(${native} AS ${type === "bytes" ? "BLOB" : "TEXT"})`;
  }

  parameter(number: number, type: ColumnType): string {
    return `CAST(:p${number} AS ${NATIVE[type]})`;
  }

  async insert(into: string, { columns }: TransferTable, rows: readonly WholeRow[]): Promise<void> {
    const values = Object.values(columns).map((type, index) => this.parameter(index + 1, type));
    const statement = this.#db.prepare(
      `INSERT INTO ${into} (${Object.keys(columns).join(", ")}) VALUES (${values.join(", ")})`,
    );
    for (const row of rows) statement.run(Object.fromEntries(row.map((value, index) => [`p${index + 1}`, value])));
  }

  async now(): Promise<number> {
    return Date.now();
  }

  async highestId(): Promise<string> {
    const [row] = await this.query(
      "SELECT CAST(max(seq) AS TEXT) AS highest FROM sqlite_sequence WHERE name = 'messages'",
    );
    return String(row?.["highest"] ?? 0);
  }

  async raiseHighestId(to: string): Promise<void> {
    const least = this.parameter(1, "integer");
    await this.query(
      `INSERT INTO sqlite_sequence (name, seq)
        SELECT 'messages', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'messages')`,
    );
    await this.query(`UPDATE sqlite_sequence SET seq = max(seq, ${least}) WHERE name = 'messages'`, [to]);
  }

  async count(): Promise<void> {
    recount(this.#db);
  }

  async close(): Promise<void> {
    this.#db.close();
  }
}

/** SQLite's errors have a code of its own; ours, and those of JavaScript, stay what they are. */
function isOfSqlite(error: unknown): boolean {
  const { code, errcode } = (error ?? {}) as { code?: unknown; errcode?: unknown };
  return errcode !== undefined || String(code).startsWith("SQLITE_");
}
