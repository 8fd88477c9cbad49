import { openDatabase } from "./database.ts";
import { isOnPostgres } from "./location.ts";

export interface FinishedJobs {
  readonly queue?: string;
  readonly rows: number;
  /** Acked, or dead letters. */
  readonly status?: 2 | 3;
}

const COLUMNS = "queue, payload, status, attempts, max_attempts, available_at, job_id, created_at, updated_at";

/** Adds jobs that were done with a minute ago, past the queue, and counts them. */
export function addFinished(location: string, jobs: FinishedJobs): void {
  const database = openDatabase(location);
  const { queue = "default", rows, status = 2 } = jobs;
  const add = isOnPostgres(location) ? addOnPostgres : addOnSqlite;
  database.exec(add({ queue, rows, status }, Date.now() - 60_000));
  database.close();
}

function addOnSqlite({ queue, rows, status }: Required<FinishedJobs>, at: number): string {
  return `BEGIN IMMEDIATE;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows})
    INSERT INTO messages (${COLUMNS})
      SELECT '${queue}', zeroblob(100), ${status}, 1, 4, ${at}, iif(i % 10, NULL, hex(randomblob(8))), ${at}, ${at} FROM n;
    INSERT INTO localqueue_counts (queue, acked, failed)
      VALUES ('${queue}', ${status === 2 ? rows : 0}, ${status === 3 ? rows : 0})
      ON CONFLICT DO UPDATE SET acked = acked + excluded.acked, failed = failed + excluded.failed;
    COMMIT`;
}

function addOnPostgres({ queue, rows, status }: Required<FinishedJobs>, at: number): string {
  return `INSERT INTO messages (${COLUMNS})
    SELECT '${queue}', decode(repeat('00', 100), 'hex'), ${status}, 1, 4, ${at},
      CASE WHEN i % 10 = 0 THEN gen_random_uuid()::text END, ${at}, ${at} FROM generate_series(1, ${rows}) AS i;
    INSERT INTO counts (queue, acked, failed)
      VALUES ('${queue}', ${status === 2 ? rows : 0}, ${status === 3 ? rows : 0})`;
}
