import path from "node:path";
import { loadDriver } from "../../../dist/storage/sqlite/driver.js";
import { SQL } from "../../../dist/storage/sqlite/statements.js";
import { payloadBytes } from "./payload.mjs";

const SLICE = 500_000;

const FILL = `WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)
  INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at)
  SELECT 'default', CAST(:payload AS BLOB), :status, :attempts, 4, :at, :at, :at FROM numbers`;

/** Adds so many jobs to a file that localqueue made. Through SQL: calls would take minutes, the rows are the same. */
export function fill(directory, state, jobs, at = Date.now()) {
  const db = loadDriver().open(path.join(directory, "localqueue.db"));
  const [insert, count] = [db.prepare(FILL), db.prepare(SQL.count)];
  const acked = state === "acked";
  for (let left = jobs; left > 0; left -= SLICE) {
    const rows = Math.min(left, SLICE);
    db.exec("BEGIN IMMEDIATE");
    insert.run({ rows, payload: payloadBytes, status: acked ? 2 : 0, attempts: acked ? 1 : 0, at });
    count.run({ queue: "default", ready: 0, processing: 0, acked: 0, failed: 0, [state]: rows, now: at });
    db.exec("COMMIT");
    db.prepare("PRAGMA wal_checkpoint(TRUNCATE)").all();
  }
  db.close();
}
