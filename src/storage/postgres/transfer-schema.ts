import { StorageError } from "../../errors.ts";
import { describeTarget, type PostgresTarget } from "../postgres-target.ts";
import type { ColumnType, FoundRow, TransferDatabase, TransferTable, Value, WholeRow } from "../transfer.ts";
import { assertUsable, openSession, type Session } from "./connect.ts";
import { toStorageError } from "./failures.ts";
import { migrate } from "./schema.ts";

/** How long to wait for whoever writes. */
const LOCK_TIMEOUT = "10s";

const NATIVE: { readonly [T in ColumnType]: string } = { integer: "bigint", text: "text", bytes: "bytea" };

/** Texts that only tell what happened: what the server cannot hold of them is replaced. */
const REMARKS: readonly string[] = ["last_error", "failure_reason", "failure_category", "trace_context"];

/** Connects, and brings the schema to the current layout. */
export async function openTransferSchema(target: PostgresTarget): Promise<TransferDatabase> {
  const session = await openSession(target);
  try {
    await assertUsable(session, target);
    await migrate(session.client, target);
    return new TransferSchema(session, target);
  } catch (error) {
    await session.close(true);
    throw toStorageError(error, describeTarget(target));
  }
}

/** A schema that whole rows are read from or written to. */
class TransferSchema implements TransferDatabase {
  readonly name: string;
  readonly #session: Session;
  readonly #schema: string;

  constructor(session: Session, target: PostgresTarget) {
    this.name = describeTarget(target);
    this.#session = session;
    this.#schema = target.schema;
  }

  async transaction<T>(work: () => Promise<T>, exclusive?: "exclusive"): Promise<T> {
    try {
      await this.query("BEGIN ISOLATION LEVEL READ COMMITTED");
      await this.#prepare();
      // All that is written is written together with a row of this table.
      if (exclusive !== undefined) await this.query("LOCK TABLE messages IN EXCLUSIVE MODE");
      const result = await work();
      await this.query("COMMIT");
      return result;
    } catch (error) {
      await this.query("ROLLBACK").catch(() => {});
      throw isOfPostgres(error) ? toStorageError(error, this.name) : error;
    }
  }

  /** Limits of the server that are meant for short transactions do not hold for this one. */
  async #prepare(): Promise<void> {
    const settings = [
      ["search_path", `"${this.#schema}"`],
      ["lock_timeout", LOCK_TIMEOUT],
      ["statement_timeout", "0"],
      ["idle_in_transaction_session_timeout", "0"],
      ["transaction_timeout", "0"],
    ] as const;
    await this.query(
      `SELECT set_config(name, value, true) FROM unnest($1::text[], $2::text[]) AS wanted (name, value)
        JOIN pg_catalog.pg_settings USING (name)`,
      [settings.map(([name]) => name), settings.map(([, value]) => value)],
    );
  }

  async query(sql: string, values: readonly unknown[] = []): Promise<readonly FoundRow[]> {
    return (await this.#session.client.query<FoundRow>(sql, [...values])).rows;
  }

  read(column: string, type: ColumnType): string {
    return type === "integer" ? `${column}::text` : column;
  }

  parameter(number: number, type: ColumnType): string {
    return `$${number}::${NATIVE[type]}`;
  }

  async insert(into: string, { columns, key }: TransferTable, rows: readonly WholeRow[]): Promise<void> {
    const names = Object.keys(columns);
    const arrays = Object.values(columns).map((type, index) => `$${index + 1}::${NATIVE[type]}[]`);
    const values = names.map((name, index) => {
      const refuse = (row: WholeRow): never => {
        const which = key.map((column) => `${column} ${JSON.stringify(row[names.indexOf(column)])}`).join(", ");
        throw new StorageError(
          "BAD_LOCATION",
          `The row with ${which} has a NUL in its ${name}, which PostgreSQL cannot hold. Nothing was moved: remove it first.`,
        );
      };
      return rows.map((row) => storable(row[index] as Value, REMARKS.includes(name) || (() => refuse(row))));
    });
    await this.query(`INSERT INTO ${into} (${names.join(", ")}) SELECT * FROM unnest(${arrays.join(", ")})`, values);
  }

  async now(): Promise<number> {
    const [row] = await this.query("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000) AS now");
    return Number(row?.["now"]);
  }

  async highestId(): Promise<string> {
    const [row] = await this.query(
      "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('messages', 'id')::regclass), 0) AS highest",
    );
    return String(row?.["highest"]);
  }

  async raiseHighestId(to: string): Promise<void> {
    await this.query(
      `SELECT setval(pg_get_serial_sequence('messages', 'id'), highest) FROM (
        SELECT greatest(pg_sequence_last_value(pg_get_serial_sequence('messages', 'id')::regclass), $1::bigint) AS highest
      ) AS ids WHERE highest > 0`,
      [to],
    );
  }

  async count(from: string): Promise<void> {
    await this.query(
      `INSERT INTO counts (queue, ready, processing, acked, failed, clock)
        SELECT queue, count(*) FILTER (WHERE status = 0), count(*) FILTER (WHERE status = 1),
          count(*) FILTER (WHERE status = 2), count(*) FILTER (WHERE status = 3), max(updated_at)
        FROM ${from} GROUP BY queue`,
    );
  }

  close(): Promise<void> {
    return this.#session.close();
  }
}

function storable(value: Value, mend: boolean | (() => never)): Value {
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (value === null || !value.includes("\0")) return value;
  return typeof mend === "function" ? mend() : value.replaceAll("\0", "\uFFFD");
}

/** What the server or the connection threw; ours, and whoever interrupts, stay what they are. */
function isOfPostgres(error: unknown): boolean {
  return error instanceof Error && !(error instanceof StorageError) && error.name !== "AbortError";
}
