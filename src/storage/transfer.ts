import type { QueueCounts } from "./storage.ts";

/**
 * What moves from one database to another: all rows of all tables, value for value. Both kinds of database have the
 * same tables and columns. Numbers travel as their digits: other programs store some that JavaScript cannot hold.
 */

export type Value = string | Uint8Array | null;

/** In the order of the columns. */
export type WholeRow = readonly Value[];

export type ColumnType = "integer" | "text" | "bytes";

export interface TransferTable {
  readonly name: string;
  readonly columns: { readonly [name: string]: ColumnType };
  /** The columns that name a row, in whose order rows are read. */
  readonly key: readonly string[];
  /** What else is unique: a job is known by it. */
  readonly unique: readonly (readonly string[])[];
}

export const MESSAGES: TransferTable = {
  name: "messages",
  columns: {
    id: "integer",
    queue: "text",
    payload: "bytes",
    status: "integer",
    attempts: "integer",
    max_attempts: "integer",
    available_at: "integer",
    lease_until: "integer",
    receipt: "text",
    last_error: "text",
    failure_reason: "text",
    failure_category: "text",
    job_id: "text",
    dedup_key: "text",
    dedup_fingerprint: "text",
    created_at: "integer",
    updated_at: "integer",
    releases: "integer",
    trace_context: "text",
  },
  key: ["id"],
  unique: [
    ["queue", "job_id"],
    ["queue", "dedup_key"],
  ],
};

/** In an order in which each refers to those before it only. */
export const TABLES: readonly TransferTable[] = [
  MESSAGES,
  {
    name: "event_bus_executions",
    columns: {
      execution_id: "text",
      bus_name: "text",
      source_name: "text",
      checkpoint_name: "text",
      source_completed: "integer",
      created_at: "integer",
      updated_at: "integer",
    },
    key: ["execution_id"],
    unique: [],
  },
  {
    name: "event_bus_execution_deliveries",
    columns: { execution_id: "text", message_id: "integer" },
    key: ["execution_id", "message_id"],
    unique: [],
  },
  {
    name: "event_bus_delivery_edges",
    columns: { parent_message_id: "integer", child_message_id: "integer" },
    key: ["parent_message_id", "child_message_id"],
    unique: [],
  },
  {
    name: "event_bus_execution_runtime",
    columns: {
      execution_id: "text",
      bus_name: "text",
      checkpoint_name: "text",
      source_fingerprint: "text",
      checkpoint_generation: "text",
      source_receipt: "text",
      source_lease_until: "integer",
      source_completed_at: "integer",
      completed_at: "integer",
      items_committed: "integer",
      events_dispatched: "integer",
      events_unrouted: "integer",
      deliveries_inserted: "integer",
      deliveries_deduplicated: "integer",
      batches_committed: "integer",
    },
    key: ["execution_id"],
    unique: [],
  },
  {
    name: "ingestion_checkpoints",
    columns: {
      bus_name: "text",
      checkpoint_name: "text",
      cursor: "text",
      source_fingerprint: "text",
      generation: "text",
      version: "integer",
      items_committed: "integer",
      batches_committed: "integer",
      created_at: "integer",
      updated_at: "integer",
    },
    key: ["bus_name", "checkpoint_name"],
    unique: [],
  },
];

/** A database that whole rows are read from or written to, by one caller at a time. All is done in transactions. */
export interface TransferDatabase {
  /** By which another database knows it again. */
  readonly name: string;
  /**
   * Does the work in one transaction; throws what it throws, and then leaves nothing. Where `exclusive`, nobody else
   * writes meanwhile. Rejects with `StorageError`.
   */
  transaction<T>(work: () => Promise<T>, exclusive?: "exclusive"): Promise<T>;
  query(sql: string, values?: readonly Value[]): Promise<readonly FoundRow[]>;
  /** A column, as SQL that gives a `Value`. */
  read(column: string, type: ColumnType): string;
  /** A parameter of that number, from 1, as SQL. */
  parameter(number: number, type: ColumnType): string;
  /** Adds rows of a table to one that has the same columns. */
  insert(into: string, table: TransferTable, rows: readonly WholeRow[]): Promise<void>;
  /** Milliseconds since the epoch, by the clock that leases are measured with. */
  now(): Promise<number>;
  /** The highest id that a job ever had, which no other job will have; it can be raised. */
  highestId(): Promise<string>;
  raiseHighestId(to: string): Promise<void>;
  /** Brings the counts in line with jobs that were added; `from` is a table with the same ones. */
  count(from: string): Promise<void>;
  close(): Promise<void>;
}

/** Whole numbers are numbers or their digits. */
export type FoundRow = { readonly [column: string]: unknown };

/** By queue. */
export async function countsIn(database: TransferDatabase, table: string): Promise<QueueCounts[]> {
  const rows = await database.query(
    `SELECT queue, count(*) FILTER (WHERE status = 0) AS ready, count(*) FILTER (WHERE status = 1) AS processing,
      count(*) FILTER (WHERE status = 2) AS acked, count(*) FILTER (WHERE status = 3) AS failed
      FROM ${table} GROUP BY queue`,
  );
  const counts = rows.map(({ queue, ready, processing, acked, failed }) => ({
    queue: String(queue),
    ready: Number(ready),
    processing: Number(processing),
    acked: Number(acked),
    failed: Number(failed),
  }));
  return counts.sort((one, other) => (one.queue < other.queue ? -1 : 1));
}

/** The values of a row's key. */
export function keyOf({ columns, key }: TransferTable, row: WholeRow): Value[] {
  const names = Object.keys(columns);
  return key.map((column) => row[names.indexOf(column)] as Value);
}
