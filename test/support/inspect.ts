import type { Row } from "../../dist/storage/sqlite/driver.js";
import { openPatient } from "./database.ts";
import { isOnPostgres } from "./location.ts";

/** Looks into a database file with SQL, past the queue. */
export function select(location: string, sql: string): Row[] {
  const db = openPatient(location);
  try {
    return db.prepare(sql).all();
  } finally {
    db.close();
  }
}

const sumOf = (status: number): string => `sum(CASE WHEN status = ${status} THEN 1 ELSE 0 END)`;

/** What is wrong with a database, apart from what is in the jobs: nothing, it is to be hoped. */
export function faultsOf(location: string): string[] {
  const integrity = isOnPostgres(location)
    ? [] // the server's own business
    : select(location, "PRAGMA integrity_check").map((row) => String(row["integrity_check"]));
  const faults = integrity.filter((text) => text !== "ok");
  const counted = select(
    location,
    isOnPostgres(location)
      ? `SELECT queue, sum(ready) AS ready, sum(processing) AS processing, sum(acked) AS acked, sum(failed) AS failed
          FROM counts GROUP BY queue HAVING sum(ready + processing + acked + failed) <> 0 ORDER BY queue`
      : `SELECT queue, ready, processing, acked, failed FROM localqueue_counts
          WHERE ready + processing + acked + failed <> 0 ORDER BY queue`,
  );
  const real = select(
    location,
    `SELECT queue, ${sumOf(0)} AS ready, ${sumOf(1)} AS processing, ${sumOf(2)} AS acked, ${sumOf(3)} AS failed
      FROM messages GROUP BY queue ORDER BY queue`,
  );
  if (JSON.stringify(counted) !== JSON.stringify(real)) {
    faults.push(`counts are ${JSON.stringify(counted)}, the rows are ${JSON.stringify(real)}`);
  }
  const impossible = select(
    location,
    `SELECT id, status, attempts, max_attempts FROM messages
      WHERE (status = 1) <> (receipt IS NOT NULL) OR (status = 1) <> (lease_until IS NOT NULL)
        OR attempts > max_attempts OR attempts < 0 OR (status IN (1, 2) AND attempts = 0)`,
  );
  return [...faults, ...impossible.map((row) => `impossible row ${JSON.stringify(row)}`)];
}
