import fs from "node:fs";
import path from "node:path";
import { type Database, loadDriver } from "../../dist/storage/sqlite/driver.js";

/**
 * Databases as releases of the Python package create them: their tables and indexes word for word, and rows in every
 * state, written as that package writes them.
 */
export type PythonVersion = "1.0.0" | "1.3.0" | "1.4.1";
export const PYTHON_VERSIONS: readonly PythonVersion[] = ["1.0.0", "1.3.0", "1.4.1"];

/** When the rows were written: some time ago. */
const WRITTEN_AT = 1_790_000_000_000;
/** The end of a lease that is still running. */
const FAR_FUTURE = 4_102_444_800_000;

/** What Python's clients create if it is missing, whenever they open a file. */
export const PYTHON_INDEX =
  "CREATE INDEX IF NOT EXISTS idx_messages_queue_status ON messages(queue, status, available_at, lease_until)";

function oldMessages(reason: string): string {
  return `CREATE TABLE messages (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    queue         TEXT NOT NULL,
    payload       BLOB NOT NULL,
    status        INTEGER NOT NULL,
    attempts      INTEGER NOT NULL DEFAULT 0,
    max_attempts  INTEGER NOT NULL,
    available_at  INTEGER NOT NULL,
    lease_until   INTEGER,
    receipt       TEXT,
    last_error    TEXT,
${reason}    job_id        TEXT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
);
CREATE UNIQUE INDEX idx_messages_job_id
    ON messages(queue, job_id) WHERE job_id IS NOT NULL;
CREATE INDEX idx_messages_queue_status
    ON messages(queue, status, available_at, lease_until);`;
}

const SCHEMAS: Readonly<Record<PythonVersion, string>> = {
  // Unchanged until 1.2.
  "1.0.0": oldMessages(""),
  "1.3.0": oldMessages("    failure_reason TEXT,\n"),
  "1.4.1": `CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload BLOB NOT NULL,
    status INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL, available_at INTEGER NOT NULL,
    lease_until INTEGER, receipt TEXT, last_error TEXT, failure_reason TEXT,
    failure_category TEXT, job_id TEXT, dedup_key TEXT, dedup_fingerprint TEXT,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX idx_messages_job_id
    ON messages(queue, job_id) WHERE job_id IS NOT NULL;
CREATE UNIQUE INDEX idx_messages_dedup_key
    ON messages(queue, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX idx_messages_queue_status
    ON messages(queue, status, available_at, lease_until);
CREATE TABLE ingestion_checkpoints (
    bus_name TEXT NOT NULL, checkpoint_name TEXT NOT NULL, cursor TEXT NOT NULL,
    source_fingerprint TEXT, generation TEXT NOT NULL, version INTEGER NOT NULL,
    items_committed INTEGER NOT NULL, batches_committed INTEGER NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    PRIMARY KEY (bus_name, checkpoint_name)
);
CREATE TABLE event_bus_executions (
    execution_id TEXT PRIMARY KEY, bus_name TEXT NOT NULL, source_name TEXT NOT NULL,
    checkpoint_name TEXT, source_completed INTEGER NOT NULL DEFAULT 0 CHECK (source_completed IN (0, 1)),
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
);
CREATE TABLE event_bus_execution_deliveries (
    execution_id TEXT NOT NULL, message_id INTEGER NOT NULL,
    PRIMARY KEY (execution_id, message_id),
    FOREIGN KEY (execution_id) REFERENCES event_bus_executions(execution_id) ON DELETE CASCADE,
    FOREIGN KEY (message_id) REFERENCES messages(id)
);
CREATE INDEX idx_event_bus_execution_deliveries_message
    ON event_bus_execution_deliveries(message_id);
CREATE TABLE event_bus_delivery_edges (
    parent_message_id INTEGER NOT NULL, child_message_id INTEGER NOT NULL,
    PRIMARY KEY (parent_message_id, child_message_id),
    FOREIGN KEY (parent_message_id) REFERENCES messages(id) ON DELETE CASCADE,
    FOREIGN KEY (child_message_id) REFERENCES messages(id) ON DELETE CASCADE
);
CREATE INDEX idx_event_bus_delivery_edges_child
    ON event_bus_delivery_edges(child_message_id);
CREATE TABLE event_bus_execution_runtime (
    execution_id TEXT PRIMARY KEY, bus_name TEXT NOT NULL, checkpoint_name TEXT NOT NULL,
    source_fingerprint TEXT NOT NULL, checkpoint_generation TEXT,
    source_receipt TEXT, source_lease_until INTEGER, source_completed_at INTEGER,
    completed_at INTEGER, items_committed INTEGER NOT NULL DEFAULT 0,
    events_dispatched INTEGER NOT NULL DEFAULT 0, events_unrouted INTEGER NOT NULL DEFAULT 0,
    deliveries_inserted INTEGER NOT NULL DEFAULT 0, deliveries_deduplicated INTEGER NOT NULL DEFAULT 0,
    batches_committed INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (execution_id) REFERENCES event_bus_executions(execution_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX idx_execution_runtime_bound ON event_bus_execution_runtime(bus_name, checkpoint_name, checkpoint_generation) WHERE checkpoint_generation IS NOT NULL;
CREATE UNIQUE INDEX idx_execution_runtime_pending ON event_bus_execution_runtime(bus_name, checkpoint_name, source_fingerprint) WHERE checkpoint_generation IS NULL;
CREATE INDEX idx_execution_runtime_claim ON event_bus_execution_runtime(execution_id, source_completed_at, source_lease_until);`,
};

/** Ids 1 to 7: ready, given back once, delayed for ever, held, expired, acked, failed; and one of another queue. */
const ROWS = `INSERT INTO messages
    (queue, payload, status, attempts, max_attempts, available_at, lease_until, receipt, last_error, job_id, created_at, updated_at)
  VALUES
    ('default', x'7b2261223a20317d', 0, 0, 4, ${WRITTEN_AT}, NULL, NULL, NULL, NULL, ${WRITTEN_AT}, ${WRITTEN_AT}),
    ('default', x'7b2261223a20327d', 0, 1, 4, ${WRITTEN_AT + 2500}, NULL, NULL, 'ValueError: no', 'invoice-2', ${WRITTEN_AT}, ${WRITTEN_AT + 500}),
    ('default', x'7b2261223a20337d', 0, 1, 4, ${FAR_FUTURE}, NULL, NULL, NULL, NULL, ${WRITTEN_AT}, ${WRITTEN_AT + 600}),
    ('default', x'7b2261223a20347d', 1, 1, 4, ${WRITTEN_AT}, ${FAR_FUTURE}, '4711-1790000000000000000', NULL, 'invoice-4', ${WRITTEN_AT}, ${WRITTEN_AT + 700}),
    ('default', x'7b2261223a20357d', 1, 2, 4, ${WRITTEN_AT}, ${WRITTEN_AT + 60_800}, '4711-1790000000000000001', NULL, NULL, ${WRITTEN_AT}, ${WRITTEN_AT + 800}),
    ('default', x'7b2261223a20367d', 2, 1, 4, ${WRITTEN_AT}, NULL, NULL, NULL, 'invoice-6', ${WRITTEN_AT}, ${WRITTEN_AT + 900}),
    ('default', x'7b2261223a20377d', 3, 4, 4, ${WRITTEN_AT}, NULL, NULL, 'ValueError: never', NULL, ${WRITTEN_AT}, ${WRITTEN_AT + 950}),
    ('__bus__:app:email', x'7b7d', 0, 0, 4, ${WRITTEN_AT}, NULL, NULL, NULL, 'a0c1', ${WRITTEN_AT}, ${WRITTEN_AT});`;

const NEWER_ROWS: Readonly<Record<PythonVersion, string>> = {
  "1.0.0": "",
  "1.3.0": "UPDATE messages SET failure_reason = 'permanent_handler_error' WHERE status = 3;",
  "1.4.1": `UPDATE messages SET failure_reason = 'rejected', failure_category = 'invoice' WHERE status = 3;
    UPDATE messages SET dedup_key = 'event-identity:v1:00', dedup_fingerprint = 'event-payload:v1:11' WHERE job_id = 'a0c1';
    INSERT INTO ingestion_checkpoints VALUES ('app', 'people', '3200', NULL, '00ff', 2, 3200, 2, ${WRITTEN_AT}, ${WRITTEN_AT});
    INSERT INTO event_bus_executions VALUES ('e1', 'app', 'people', 'people', 0, ${WRITTEN_AT}, ${WRITTEN_AT});
    INSERT INTO event_bus_execution_deliveries VALUES ('e1', 8);
    INSERT INTO event_bus_delivery_edges VALUES (6, 8);
    INSERT INTO event_bus_execution_runtime (execution_id, bus_name, checkpoint_name, source_fingerprint)
      VALUES ('e1', 'app', 'people', 'f1');`,
};

/** What the statistics of the queue `default` in such a file are. */
export const PYTHON_STATS = { ready: 3, processing: 2, acked: 1, failed: 1 };

/** Creates `localqueue.db` in the directory. */
export function createPythonFile(directory: string, version: PythonVersion): void {
  const database = openBare(directory);
  database.exec("PRAGMA journal_mode = WAL");
  database.exec(SCHEMAS[version]);
  database.exec(ROWS);
  database.exec(NEWER_ROWS[version]);
  database.close();
}

/** A connection that does what it is told and nothing else. */
export function openBare(directory: string): Database {
  fs.mkdirSync(directory, { recursive: true });
  const database = loadDriver().open(path.join(directory, "localqueue.db"));
  database.exec("PRAGMA busy_timeout = 5000; PRAGMA synchronous = OFF");
  return database;
}
