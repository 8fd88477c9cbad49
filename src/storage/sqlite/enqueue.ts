import type { Enqueued } from "../storage.ts";
import type { Row } from "./driver.ts";
import type { NewJob } from "./protocol.ts";
import { PUT_ROWS, type Statements } from "./statements.ts";

/** What a library keeps bound until the next call, at most: bytes or characters. */
const JOINED_SIZE = 256 * 1024;

type PutRow = Omit<NewJob, "context"> & {
  readonly context: string | null;
  readonly queue: string;
  readonly now: number;
};

/** Adds jobs to a queue, in their order, unless their `jobId` is known; `added` is told how many were not. */
export function enqueue(
  sql: Statements,
  queue: string,
  jobs: readonly NewJob[],
  now: number,
  added: (jobs: number) => void,
): Enqueued[] {
  const rows = jobs.map(({ payload, jobId, delayMs, maxAttempts, context = null }) => {
    return { queue, payload, maxAttempts, delayMs, jobId, context, now };
  });
  const enqueued: Enqueued[] = [];
  while (enqueued.length < rows.length) {
    const next = rows.slice(enqueued.length, enqueued.length + PUT_ROWS);
    if (next.length === PUT_ROWS && areJoinable(next)) enqueued.push(...several(sql, next, added));
    else enqueued.push(one(sql, next[0] as PutRow, added));
  }
  return enqueued;
}

/** Of rows that are there already, one statement for several would not tell which. Large ones gain nothing. */
function areJoinable(rows: readonly PutRow[]): boolean {
  let size = 0;
  for (const { payload } of rows) size += payload.length;
  return size <= JOINED_SIZE && rows.every(({ jobId }) => jobId === null);
}

function several(sql: Statements, rows: readonly PutRow[], added: (jobs: number) => void): Enqueued[] {
  const { changes, lastInsertRowid } = sql.putRows.runRows(rows);
  // An index or a trigger of somebody else's may leave rows out; by themselves, it shows which.
  if (changes !== rows.length) throw new Error("not all jobs were added");
  added(changes);
  // Nobody else writes meanwhile: their ids follow each other.
  return rows.map((_, i) => ({ id: lastInsertRowid - changes + 1 + i, inserted: true }));
}

function one(sql: Statements, row: PutRow, added: (jobs: number) => void): Enqueued {
  const { changes, lastInsertRowid } = sql.put.run(row);
  if (changes > 0) {
    added(1);
    return { id: lastInsertRowid, inserted: true };
  }
  const known = sql.findByJobId.get({ queue: row.queue, jobId: row.jobId }) as Row;
  return { id: known["id"] as number, inserted: false };
}
