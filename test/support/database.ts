import path from "node:path";
import { type Database, loadDriver, type Row } from "../../dist/storage/sqlite/driver.js";

/** A connection beside the queue's own, with the same SQLite library: to look at rows, or to be in the way. */
export function openDatabase(directory: string): Database {
  return loadDriver().open(path.join(directory, "localqueue.db"));
}

/** The row of a job, as stored. */
export function readRow(directory: string, id: number): Row {
  const database = openDatabase(directory);
  try {
    return database.prepare("SELECT * FROM messages WHERE id = :id").get({ id }) as Row;
  } finally {
    database.close();
  }
}

/** Keeps everybody else from writing until the function that is returned is called. */
export function lockDatabase(directory: string): () => void {
  const database = openDatabase(directory);
  database.exec("BEGIN IMMEDIATE");
  return () => {
    database.exec("COMMIT");
    database.close();
  };
}

/** What another process does that claims a job after its lease ended. */
export function steal(directory: string, id: number): void {
  const database = openDatabase(directory);
  database.prepare("UPDATE messages SET receipt = 'of another process' WHERE id = :id").run({ id });
  database.close();
}

/** Makes the database refuse each change of a job's state to `status`, until the function that is returned is called. */
export function refuse(directory: string, status: 1 | 2): () => void {
  const database = openDatabase(directory);
  database.exec(
    `CREATE TRIGGER fault BEFORE UPDATE OF status ON messages WHEN new.status = ${status}
     BEGIN SELECT RAISE(ABORT, 'a fault of the test'); END`,
  );
  return () => {
    database.exec("DROP TRIGGER fault");
    database.close();
  };
}
