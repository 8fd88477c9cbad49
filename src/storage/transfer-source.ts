import { StorageError } from "../errors.ts";
import type { QueueCounts } from "./storage.ts";
import { countsIn, keyOf, type TransferDatabase, type TransferTable, type Value, type WholeRow } from "./transfer.ts";

/** How much is read at a time; a larger payload goes alone. */
const SLICE_ROWS = 1_000;
const SLICE_BYTES = 4 * 1024 * 1024;

/** What is to be moved, as long as nobody can change it. */
export interface SourceFacts {
  readonly counts: readonly QueueCounts[];
  readonly highestId: string;
}

/** Rejects with BUSY while jobs are being processed: they would go on in both places. */
export async function factsOf(source: TransferDatabase): Promise<SourceFacts> {
  const now = await source.now();
  const [row] = await source.query(
    `SELECT count(*) AS held FROM messages WHERE status = 1 AND lease_until > ${source.parameter(1, "integer")}`,
    [String(now)],
  );
  const held = Number(row?.["held"]);
  if (held > 0) {
    const jobs = held === 1 ? "A job is" : `${held} jobs are`;
    throw new StorageError(
      "BUSY",
      `${jobs} being processed. Stop all workers, or wait until their leases end, and try again (${source.name}).`,
    );
  }
  return { counts: await countsIn(source, "messages"), highestId: await source.highestId() };
}

/** The rows of a table that follow one, in the order of their keys: the same each time. */
export async function readSlice(
  source: TransferDatabase,
  table: TransferTable,
  after: WholeRow | undefined,
): Promise<WholeRow[]> {
  const values = after === undefined ? [] : keyOf(table, after);
  const rows = await source.query(sliceOf(source, table, after === undefined), values);
  return rows.map((row) => Object.keys(table.columns).map((column) => row[column] as Value));
}

function sliceOf(source: TransferDatabase, { name, columns, key }: TransferTable, isFirst: boolean): string {
  const order = key.join(", ");
  const values = key.map((column, index) => source.parameter(index + 1, columns[column] ?? "text"));
  const where = isFirst ? "" : `WHERE (${order}) > (${values.join(", ")})`;
  const next = `SELECT * FROM ${name} ${where} ORDER BY ${order} LIMIT ${SLICE_ROWS}`;
  const read = Object.entries(columns).map(([column, type]) => `${source.read(`slice.${column}`, type)} AS ${column}`);
  const ordered = key.map((column) => `slice.${column}`).join(", ");
  if (columns["payload"] === undefined) return `SELECT ${read.join(", ")} FROM (${next}) AS slice ORDER BY ${ordered}`;
  const before = `sum(length(payload)) OVER (ORDER BY ${order}) - length(payload) AS bytes_before`;
  return (
    `SELECT ${read.join(", ")} FROM (SELECT part.*, ${before} FROM (${next}) AS part) AS slice ` +
    `WHERE bytes_before < ${SLICE_BYTES} ORDER BY ${ordered}`
  );
}
