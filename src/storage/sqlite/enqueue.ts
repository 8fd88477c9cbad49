import type { Enqueued } from "../storage.ts";
import type { Row } from "./driver.ts";
import type { NewJob } from "./protocol.ts";
import { PUT_ROWS, type Statements } from "./statements.ts";

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
    // Of rows that are there already, one statement for several would not tell which.
    if (next.length === PUT_ROWS && next.every(({ jobId }) => jobId === null)) {
      // None is left out, and nobody else writes meanwhile: their ids follow each other.
      const { lastInsertRowid: last } = sql.putRows.runRows(next);
      for (let id = last - PUT_ROWS + 1; id <= last; id++) enqueued.push({ id, inserted: true });
      added(PUT_ROWS);
    } else enqueued.push(one(sql, next[0] as PutRow, added));
  }
  return enqueued;
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
