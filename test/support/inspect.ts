import type { Row } from "../../dist/storage/sqlite/driver.js";
import { openDatabase } from "./database.ts";

/** Looks into a database file with SQL, past the queue. */
export function select(directory: string, sql: string): Row[] {
  const db = openDatabase(directory);
  try {
    db.exec("PRAGMA busy_timeout = 5000");
    return db.prepare(sql).all();
  } finally {
    db.close();
  }
}

/** What is wrong with a database, apart from what is in the jobs: nothing, it is to be hoped. */
export function faultsOf(directory: string): string[] {
  const integrity = select(directory, "PRAGMA integrity_check").map((row) => String(row["integrity_check"]));
  const faults = integrity.filter((text) => text !== "ok");
  const counted = select(
    directory,
    `SELECT queue, ready, processing, acked, failed FROM localqueue_counts
      WHERE ready + processing + acked + failed <> 0 ORDER BY queue`,
  );
  const real = select(
    directory,
    `SELECT queue, sum(status = 0) AS ready, sum(status = 1) AS processing, sum(status = 2) AS acked,
      sum(status = 3) AS failed FROM messages GROUP BY queue ORDER BY queue`,
  );
  if (JSON.stringify(counted) !== JSON.stringify(real)) {
    faults.push(`counts are ${JSON.stringify(counted)}, the rows are ${JSON.stringify(real)}`);
  }
  const impossible = select(
    directory,
    `SELECT id, status, attempts, max_attempts FROM messages
      WHERE (status = 1) <> (receipt IS NOT NULL) OR (status = 1) <> (lease_until IS NOT NULL)
        OR attempts > max_attempts OR attempts < 0 OR (status IN (1, 2) AND attempts = 0)`,
  );
  return [...faults, ...impossible.map((row) => `impossible row ${JSON.stringify(row)}`)];
}
