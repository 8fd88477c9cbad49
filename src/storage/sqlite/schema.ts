import { StorageError } from "../../errors.ts";
import type { Database } from "./driver.ts";

/**
 * The file's layout. The first part is shared with the Python package, table for table and column for column; what we
 * add (columns with defaults, partial indexes, a table of counts, triggers) goes unnoticed there.
 */
const MESSAGES = `CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload BLOB NOT NULL,
    status INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL, available_at INTEGER NOT NULL,
    lease_until INTEGER, receipt TEXT, last_error TEXT, failure_reason TEXT,
    failure_category TEXT, job_id TEXT, dedup_key TEXT, dedup_fingerprint TEXT,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
)`;

/** Columns that older files lack, in the order in which the Python package appends them; the last two are ours. */
const ADDED_COLUMNS = {
  failure_reason: "TEXT",
  failure_category: "TEXT",
  dedup_key: "TEXT",
  dedup_fingerprint: "TEXT",
  releases: "INTEGER NOT NULL DEFAULT 0",
  trace_context: "TEXT",
} as const;

const EVENT_TABLES = {
  ingestion_checkpoints: `CREATE TABLE IF NOT EXISTS ingestion_checkpoints (
    bus_name TEXT NOT NULL, checkpoint_name TEXT NOT NULL, cursor TEXT NOT NULL,
    source_fingerprint TEXT, generation TEXT NOT NULL, version INTEGER NOT NULL,
    items_committed INTEGER NOT NULL, batches_committed INTEGER NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    PRIMARY KEY (bus_name, checkpoint_name)
)`,
  event_bus_executions: `CREATE TABLE IF NOT EXISTS event_bus_executions (
    execution_id TEXT PRIMARY KEY, bus_name TEXT NOT NULL, source_name TEXT NOT NULL,
    checkpoint_name TEXT, source_completed INTEGER NOT NULL DEFAULT 0 CHECK (source_completed IN (0, 1)),
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
)`,
  event_bus_execution_deliveries: `CREATE TABLE IF NOT EXISTS event_bus_execution_deliveries (
    execution_id TEXT NOT NULL, message_id INTEGER NOT NULL,
    PRIMARY KEY (execution_id, message_id),
    FOREIGN KEY (execution_id) REFERENCES event_bus_executions(execution_id) ON DELETE CASCADE,
    FOREIGN KEY (message_id) REFERENCES messages(id)
)`,
  idx_event_bus_execution_deliveries_message: `CREATE INDEX IF NOT EXISTS idx_event_bus_execution_deliveries_message
    ON event_bus_execution_deliveries(message_id)`,
  event_bus_delivery_edges: `CREATE TABLE IF NOT EXISTS event_bus_delivery_edges (
    parent_message_id INTEGER NOT NULL, child_message_id INTEGER NOT NULL,
    PRIMARY KEY (parent_message_id, child_message_id),
    FOREIGN KEY (parent_message_id) REFERENCES messages(id) ON DELETE CASCADE,
    FOREIGN KEY (child_message_id) REFERENCES messages(id) ON DELETE CASCADE
)`,
  idx_event_bus_delivery_edges_child: `CREATE INDEX IF NOT EXISTS idx_event_bus_delivery_edges_child
    ON event_bus_delivery_edges(child_message_id)`,
  event_bus_execution_runtime: `CREATE TABLE IF NOT EXISTS event_bus_execution_runtime (
    execution_id TEXT PRIMARY KEY, bus_name TEXT NOT NULL, checkpoint_name TEXT NOT NULL,
    source_fingerprint TEXT NOT NULL, checkpoint_generation TEXT,
    source_receipt TEXT, source_lease_until INTEGER, source_completed_at INTEGER,
    completed_at INTEGER, items_committed INTEGER NOT NULL DEFAULT 0,
    events_dispatched INTEGER NOT NULL DEFAULT 0, events_unrouted INTEGER NOT NULL DEFAULT 0,
    deliveries_inserted INTEGER NOT NULL DEFAULT 0, deliveries_deduplicated INTEGER NOT NULL DEFAULT 0,
    batches_committed INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (execution_id) REFERENCES event_bus_executions(execution_id) ON DELETE CASCADE
)`,
  idx_execution_runtime_bound: `CREATE UNIQUE INDEX IF NOT EXISTS idx_execution_runtime_bound ON event_bus_execution_runtime(bus_name, checkpoint_name, checkpoint_generation) WHERE checkpoint_generation IS NOT NULL`,
  idx_execution_runtime_pending: `CREATE UNIQUE INDEX IF NOT EXISTS idx_execution_runtime_pending ON event_bus_execution_runtime(bus_name, checkpoint_name, source_fingerprint) WHERE checkpoint_generation IS NULL`,
  idx_execution_runtime_claim: `CREATE INDEX IF NOT EXISTS idx_execution_runtime_claim ON event_bus_execution_runtime(execution_id, source_completed_at, source_lease_until)`,
} as const;

/** Each is built in a transaction of its own: on a large file of an older version one takes about a second. */
const MESSAGE_INDEXES = {
  idx_messages_job_id: `CREATE UNIQUE INDEX IF NOT EXISTS idx_messages_job_id
    ON messages(queue, job_id) WHERE job_id IS NOT NULL`,
  idx_messages_dedup_key: `CREATE UNIQUE INDEX IF NOT EXISTS idx_messages_dedup_key
    ON messages(queue, dedup_key) WHERE dedup_key IS NOT NULL`,
  localqueue_ready: `CREATE INDEX IF NOT EXISTS localqueue_ready
    ON messages(queue, id) WHERE status = 0 AND available_at <= updated_at`,
  localqueue_delayed: `CREATE INDEX IF NOT EXISTS localqueue_delayed
    ON messages(queue, available_at) WHERE status = 0 AND available_at > updated_at`,
  localqueue_leased: `CREATE INDEX IF NOT EXISTS localqueue_leased
    ON messages(queue, lease_until) WHERE status = 1`,
  localqueue_failed: `CREATE INDEX IF NOT EXISTS localqueue_failed
    ON messages(queue, id) WHERE status = 3`,
} as const;

/** An index that every Python client creates before it first writes. It slows our writes, so we do not. */
const PYTHON_INDEX = "idx_messages_queue_status";

/**
 * Counts by state, so that nothing ever counts rows. `clock` is the latest time written, which shows that the clock was
 * set back since. Only the repair sets it back too, when nothing is left to do: whoever does that may be killed before.
 */
const COUNTS = `CREATE TABLE IF NOT EXISTS localqueue_counts (
    queue TEXT PRIMARY KEY, ready INTEGER NOT NULL DEFAULT 0, processing INTEGER NOT NULL DEFAULT 0,
    acked INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, clock INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID`;

/** The last transaction of each engine: see `CommitRecord`. */
const COMMITS = `CREATE TABLE IF NOT EXISTS localqueue_commits (
    arrival INTEGER PRIMARY KEY, engine INTEGER NOT NULL, number INTEGER NOT NULL, looks INTEGER NOT NULL DEFAULT 0
)`;

/**
 * While only we write, a transaction updates its counts once. As soon as Python writes too, triggers keep them: they
 * see every writer, at twice the cost. No UPSERT in them, since the conflict clause of the outer statement
 * (Python's INSERT OR IGNORE) takes the place of the one inside.
 */
const TRIGGERS = {
  localqueue_count_insert: countTrigger("INSERT", "", "new"),
  localqueue_count_update: countTrigger("UPDATE OF status", "WHEN old.status IS NOT new.status", "new", "old"),
  localqueue_count_delete: countTrigger("DELETE", "", undefined, "old"),
} as const;

function countTrigger(event: string, condition: string, added?: string, removed?: string): string {
  const row = added ?? removed;
  const column = (name: string, status: number): string =>
    `${name} = ${name}${added ? ` + (new.status = ${status})` : ""}${removed ? ` - (old.status = ${status})` : ""}`;
  return `CREATE TRIGGER IF NOT EXISTS localqueue_count_${event.split(" ")[0]?.toLowerCase()} AFTER ${event} ON messages ${condition} BEGIN
    INSERT INTO localqueue_counts (queue) SELECT ${row}.queue
      WHERE NOT EXISTS (SELECT 1 FROM localqueue_counts WHERE queue = ${row}.queue);
    UPDATE localqueue_counts SET ${column("ready", 0)}, ${column("processing", 1)}, ${column("acked", 2)},
      ${column("failed", 3)}, clock = max(clock, ${row}.updated_at) WHERE queue = ${row}.queue;
  END`;
}

const RECOUNT = `DELETE FROM localqueue_counts;
  INSERT INTO localqueue_counts SELECT queue, sum(status = 0), sum(status = 1), sum(status = 2), sum(status = 3),
    max(updated_at) FROM messages GROUP BY queue`;

/**
 * An ANALYZE of a file with few rows makes SQLite walk through all of them from then on, also when they have become
 * many. Without statistics it takes the table for large, as the statements do.
 */
const STATISTICS = ["sqlite_stat1", "sqlite_stat4"] as const;

interface Objects {
  readonly names: ReadonlySet<string>;
  readonly columns: ReadonlySet<string>;
  /** Tables that hold statistics of the jobs. */
  readonly statistics: readonly string[];
}

function inspect(db: Database): Objects {
  const names = db.prepare("SELECT name FROM sqlite_schema").all();
  const columns = db.prepare("SELECT name FROM pragma_table_info('messages')").all();
  const known = new Set(names.map((row) => row["name"] as string));
  const isFilled = (table: string): boolean =>
    known.has(table) && db.prepare(`SELECT 1 FROM ${table} WHERE tbl = 'messages' LIMIT 1`).all().length > 0;
  return {
    names: known,
    columns: new Set(columns.map((row) => row["name"] as string)),
    statistics: STATISTICS.filter(isFilled),
  };
}

/** What a file lacks, or has and should not: each entry is to be executed in a transaction of its own, in this order. */
function missing({ names, columns, statistics }: Objects): string[] {
  const absent = (table: { readonly [name: string]: string }): string[] =>
    Object.entries(table).flatMap(([name, sql]) => (names.has(name) ? [] : [sql]));
  if (!names.has("messages")) {
    const ours = ["releases", "trace_context"].map(addColumn);
    return [[MESSAGES, ...ours, ...absent(MESSAGE_INDEXES), ...absent(EVENT_TABLES), COUNTS, COMMITS].join(";\n")];
  }
  const steps = Object.keys(ADDED_COLUMNS).flatMap((name) => (columns.has(name) ? [] : [addColumn(name)]));
  steps.push(...absent(MESSAGE_INDEXES), ...absent(EVENT_TABLES), ...absent({ localqueue_commits: COMMITS }));
  const counters = [
    ...(names.has("localqueue_counts") ? [] : [COUNTS]),
    ...(names.has(PYTHON_INDEX) ? absent(TRIGGERS) : []),
  ];
  if (counters.length > 0) steps.push([...counters, RECOUNT].join(";\n"));
  if (statistics.length > 0) {
    const forget = statistics.map((table) => `DELETE FROM ${table} WHERE tbl = 'messages'`);
    // What is read of them into memory is read anew.
    steps.push([...forget, "ANALYZE sqlite_schema"].join(";\n"));
  }
  return steps;
}

function addColumn(name: string): string {
  return `ALTER TABLE messages ADD COLUMN ${name} ${ADDED_COLUMNS[name as keyof typeof ADDED_COLUMNS]}`;
}

/** Throws unless the file is new, or one of ours or Python's of a version that we know. Reads only. */
export function assertCompatible(db: Database, path: string): void {
  const version = Number(db.prepare("PRAGMA user_version").get()?.["user_version"]);
  if (version > 0) {
    throw new StorageError(
      "NEWER_SCHEMA",
      `${path} was written by a newer version of localqueue (schema ${version}). Update localqueue in this program.`,
    );
  }
  const encoding = db.prepare("PRAGMA encoding").get()?.["encoding"];
  if (encoding !== "UTF-8") {
    throw new StorageError(
      "BAD_LOCATION",
      `${path} keeps its texts in ${encoding}, localqueue needs UTF-8. Choose another directory.`,
    );
  }
  const { names, columns } = inspect(db);
  const needed = [
    "id",
    "queue",
    "payload",
    "status",
    "attempts",
    "max_attempts",
    "available_at",
    "lease_until",
    "receipt",
  ];
  const lacking = [...needed, "last_error", "job_id", "created_at", "updated_at"].filter((name) => !columns.has(name));
  if (names.has("messages") && lacking.length > 0) {
    throw new StorageError(
      "NOT_A_DATABASE",
      `${path} has a table named messages that is not localqueue's: it lacks ${lacking.join(", ")}. Choose another directory.`,
    );
  }
}

/**
 * Brings a file to the current layout. Looks before it locks, so an up-to-date file is opened without a write lock,
 * and looks again inside each transaction, since other processes may be opening the same file.
 */
export function migrate(db: Database, inTransaction: (work: () => void) => void): void {
  while (missing(inspect(db)).length > 0) {
    inTransaction(() => {
      const [step] = missing(inspect(db));
      if (step !== undefined) db.exec(step);
    });
  }
}

/** Whether nothing is missing. */
export function isComplete(db: Database): boolean {
  return missing(inspect(db)).length === 0;
}

/** The names of the tables, columns, indexes and triggers that are missing. */
export function missingNames(db: Database): string[] {
  const made = /(?:(?:TABLE|INDEX|TRIGGER) IF NOT EXISTS|ADD COLUMN) (\w+)/g;
  return missing(inspect(db)).flatMap((step) => Array.from(step.matchAll(made), ([, name]) => name as string));
}

/** Within a write transaction: counts the jobs of all queues anew. */
export function recount(db: Database): void {
  db.exec(RECOUNT);
}

/** Within a write transaction: whether the layout is as it was left, which a Python client that opens the file changes. */
export function completeSchema(db: Database): void {
  for (const step of missing(inspect(db))) db.exec(step);
}

/** Whether triggers keep the counts (see above), or each transaction does. */
export function countsAreTriggered(db: Database): boolean {
  return inspect(db).names.has("localqueue_count_insert");
}
