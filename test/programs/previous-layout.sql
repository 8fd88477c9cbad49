-- A file as the version before `trace_context` left it: sqlite3 localqueue.db .schema
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload BLOB NOT NULL,
    status INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL, available_at INTEGER NOT NULL,
    lease_until INTEGER, receipt TEXT, last_error TEXT, failure_reason TEXT,
    failure_category TEXT, job_id TEXT, dedup_key TEXT, dedup_fingerprint TEXT,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
, releases INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX idx_messages_job_id
    ON messages(queue, job_id) WHERE job_id IS NOT NULL;
CREATE UNIQUE INDEX idx_messages_dedup_key
    ON messages(queue, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX localqueue_ready
    ON messages(queue, id) WHERE status = 0 AND available_at <= updated_at;
CREATE INDEX localqueue_delayed
    ON messages(queue, available_at) WHERE status = 0 AND available_at > updated_at;
CREATE INDEX localqueue_leased
    ON messages(queue, lease_until) WHERE status = 1;
CREATE INDEX localqueue_failed
    ON messages(queue, id) WHERE status = 3;
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
CREATE INDEX idx_execution_runtime_claim ON event_bus_execution_runtime(execution_id, source_completed_at, source_lease_until);
CREATE TABLE localqueue_counts (
    queue TEXT PRIMARY KEY, ready INTEGER NOT NULL DEFAULT 0, processing INTEGER NOT NULL DEFAULT 0,
    acked INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, clock INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
