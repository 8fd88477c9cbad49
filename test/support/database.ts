import path from "node:path";
import { type Database, loadDriver, type Row } from "../../dist/storage/sqlite/driver.js";
import { isOnPostgres } from "./location.ts";
import { PostgresDatabase } from "./postgres-database.ts";
import type { TestDatabase } from "./test-database.ts";

/** A connection, to look at rows, or to be in the way; with the same SQLite library as the queue's own. */
export function openDatabase(location: string): TestDatabase {
  return isOnPostgres(location) ? new PostgresDatabase(location) : openFile(location);
}

export function openFile(directory: string): Database {
  return loadDriver().open(path.join(directory, "localqueue.db"));
}

/** A connection that waits while somebody else is in the way. */
export function openPatient(location: string): TestDatabase {
  const database = openDatabase(location);
  if (!isOnPostgres(location)) database.exec("PRAGMA busy_timeout = 5000"); // there everybody waits
  return database;
}

/** The row of a job, as stored. */
export function readRow(location: string, id: number): Row {
  const database = openDatabase(location);
  try {
    return database.prepare("SELECT * FROM messages WHERE id = :id").get({ id }) as Row;
  } finally {
    database.close();
  }
}

/** Keeps everybody else from writing until the function that is returned is called. */
export function lockDatabase(location: string): () => void {
  const database = openDatabase(location);
  database.exec(isOnPostgres(location) ? "BEGIN; LOCK TABLE messages IN SHARE ROW EXCLUSIVE MODE" : "BEGIN IMMEDIATE");
  return () => {
    database.exec("COMMIT");
    database.close();
  };
}

/** What another process does that claims a job after its lease ended. */
export function steal(location: string, id: number): void {
  const database = openDatabase(location);
  database.prepare("UPDATE messages SET receipt = 'of another process' WHERE id = :id").run({ id });
  database.close();
}

/** Makes the database refuse each change of a job's state to `status`, until the function that is returned is called. */
export function refuse(location: string, status: 1 | 2): () => void {
  return refuseWhere(location, "UPDATE OF status", `new.status = ${status}`);
}

/** The same for each new job with this payload. */
export function refuseNew(location: string, payload: string): () => void {
  const bytes = isOnPostgres(location) ? `convert_to('${payload}', 'UTF8')` : `CAST('${payload}' AS BLOB)`;
  return refuseWhere(location, "INSERT", `new.payload = ${bytes}`);
}

function refuseWhere(location: string, event: string, condition: string): () => void {
  const database = openDatabase(location);
  // As a disk that fails would.
  const [make, remove] = isOnPostgres(location)
    ? [
        `CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN RAISE EXCEPTION 'a fault of the test' USING ERRCODE = 'io_error'; END $$;
        CREATE TRIGGER fault BEFORE ${event} ON messages FOR EACH ROW WHEN (${condition}) EXECUTE FUNCTION fault()`,
        "DROP FUNCTION fault CASCADE",
      ]
    : [
        `CREATE TRIGGER fault BEFORE ${event} ON messages WHEN ${condition}
          BEGIN SELECT RAISE(ABORT, 'a fault of the test'); END`,
        "DROP TRIGGER fault",
      ];
  database.exec(make);
  return () => {
    database.exec(remove);
    database.close();
  };
}
