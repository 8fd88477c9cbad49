import { FAILURE_REASONS, MAX_RELEASES } from "../../state.ts";
import type { Database, Statement } from "./driver.ts";

/**
 * All SQL of the hot path, one statement per transition. Each names its index: the planner would sometimes prefer the
 * one that Python clients bring, at a thousand times the cost. `status` is a literal so that partial indexes apply.
 */

/** Who may end or extend a delivery: the holder of the receipt, until the lease ends. */
const HELD = "id = :id AND queue = :queue AND status = 1 AND receipt = :receipt AND lease_until > :now";

/** A number that other programs wrote, as far as JavaScript can hold it: some libraries throw otherwise. */
export const safe = (column: string): string => `max(min(${column}, 9007199254740991), -9007199254740991)`;

/** Longer payloads are handed from thread to thread as bytes, without a copy. */
const TEXT_BYTES = 64 * 1024;

/** Larger payloads are claimed one by one, so that nobody waits for many of them, and memory holds few. */
const JOINED_BYTES = 16 * 1024;

/** Rows that a claim moves along before it takes its own; the engine drains longer queues of them in slices. */
export const SLICE = 100;

/**
 * Where an index is partial, SQLite looks at what is bound before it chooses a plan, and plans anew for other values;
 * node:sqlite binds all of them anew with each call. The plus keeps the value out of that: a claim takes a fifth.
 */
const QUEUE = "queue = +:queue";
const DUE = `${QUEUE} AND status = 0 AND available_at > updated_at`;
const READY = `${QUEUE} AND status = 0 AND available_at <= updated_at`;

/** Rows to which executions of the Python package refer: nothing deletes them. */
const UNTRACKED = "NOT EXISTS (SELECT 1 FROM event_bus_execution_deliveries WHERE message_id = messages.id)";

/** Why a job is a dead letter, as far as it is known. */
export const REASON: string = `CASE WHEN failure_reason IN (${FAILURE_REASONS.map((reason) => `'${reason}'`).join(", ")})
  THEN failure_reason ELSE 'legacy_unknown' END`;
const OF_CAUSE = `(:reason IS NULL OR ${REASON} = :reason)
      AND (:category IS NULL OR failure_category = :category)`;
const FAILED_STRETCH = "queue = :queue AND status = 3 AND id > :after AND id <= :last";

/** Not a dead letter when its holder gives it back. */
const RELEASABLE = `(releases < ${MAX_RELEASES} OR attempts < max_attempts)`;

/** A third of the time of a statement for each. More rows gain little, and fewer calls find so many to put. */
export const PUT_ROWS = 16;
/** That saves an eighth of what a delivery takes in SQLite. */
export const ACK_ROWS = 16;

const ACKED = "status = 2, receipt = NULL, lease_until = NULL, updated_at = :now";

const PAYLOAD = `CASE WHEN :text AND length(payload) < ${TEXT_BYTES} AND instr(payload, x'00') = 0
        THEN CAST(payload AS TEXT) ELSE CAST(payload AS BLOB) END`;

function claiming(receipt: string): string {
  return `status = 1, attempts = attempts + 1, max_attempts = coalesce(:budget, max_attempts),
      receipt = ${receipt}, lease_until = :now + :leaseMs, updated_at = :now`;
}

function acking(rows: number): string {
  const leases = Array.from({ length: rows }, (_, i) => `(:id${i}, :receipt${i})`);
  return `UPDATE messages NOT INDEXED SET ${ACKED} WHERE (id, receipt) IN (VALUES ${leases.join(", ")})
    AND queue = :queue AND status = 1 AND lease_until > :now`;
}

function putting(rows: number): string {
  const row = `(:queue, CAST(:payload AS BLOB), 0, 0, :maxAttempts, :now + :delayMs, :jobId, :context, :now, :now)`;
  return `INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, job_id, trace_context,
      created_at, updated_at) VALUES ${new Array(rows).fill(row).join(", ")} ON CONFLICT DO NOTHING`;
}

export type StatementName =
  | "put"
  | "putRows"
  | "findByJobId"
  | "putEvent"
  | "knownById"
  | "knownByKey"
  | "addEdges"
  | "isTracked"
  | "trackAll"
  | "look"
  | "promote"
  | "expire"
  | "exhaust"
  | "claim"
  | "claimable"
  | "claimRange"
  | "payload"
  | "ack"
  | "ackRows"
  | "nack"
  | "fail"
  | "release"
  | "extend"
  | "renew"
  | "markOverdue"
  | "remove"
  | "discard"
  | "isFailed"
  | "replay"
  | "reopenExecutions"
  | "lastOfAll"
  | "lastFailed"
  | "stretchOfAll"
  | "stretchOfFailed"
  | "purgeAcked"
  | "purgeFailed"
  | "failedIn"
  | "createdAt"
  | "stats"
  | "count"
  | "recordCommit"
  | "recordEngine"
  | "forgetEngines"
  | "recordedCommit"
  | "recordLook"
  | "totalChanges"
  | "latestLeased"
  | "aheadLeased"
  | "aheadDelayed"
  | "pullBackLease"
  | "pullBackDelay"
  | "resetClock"
  | "clock"
  | "queues"
  | "dataVersion"
  | "schemaVersion"
  | "pageCount"
  | "freePages"
  | "autoVacuum";

export const SQL: Readonly<Record<StatementName, string>> = {
  put: putting(1),
  putRows: putting(PUT_ROWS),

  findByJobId: `SELECT id FROM messages INDEXED BY idx_messages_job_id WHERE queue = :queue AND job_id = :jobId`,

  /** One per queue: a single one for all of them would take longer, since SQLite keeps a journal for it. */
  putEvent: `INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, job_id, trace_context,
      dedup_key, dedup_fingerprint, created_at, updated_at)
    VALUES (:queue, CAST(:payload AS BLOB), 0, 0, :maxAttempts, :now, :jobId, :context, :key, :fingerprint, :now,
      :now) ON CONFLICT DO NOTHING`,
  knownById: `SELECT id, dedup_key, dedup_fingerprint FROM messages INDEXED BY idx_messages_job_id
    WHERE queue = :queue AND job_id = :jobId`,
  knownByKey: `SELECT id, dedup_key, dedup_fingerprint FROM messages INDEXED BY idx_messages_dedup_key
    WHERE queue = :queue AND dedup_key = :key`,

  addEdges: `INSERT INTO event_bus_delivery_edges (parent_message_id, child_message_id)
    SELECT :parent, value FROM json_each(:children) WHERE true ON CONFLICT DO NOTHING`,
  isTracked: "SELECT 1 AS yes FROM event_bus_execution_deliveries WHERE message_id = :id LIMIT 1",
  /** Children that were there already may have descendants. */
  trackAll: `WITH RECURSIVE descendant (id) AS (
      SELECT value FROM json_each(:children)
      UNION SELECT child_message_id FROM descendant JOIN event_bus_delivery_edges ON parent_message_id = descendant.id)
    INSERT INTO event_bus_execution_deliveries (execution_id, message_id)
      SELECT execution_id, descendant.id FROM event_bus_execution_deliveries CROSS JOIN descendant
        WHERE message_id = :parent
      ON CONFLICT DO NOTHING`,

  /** What a claim would find, and when there will be more. */
  look: `SELECT
    EXISTS (SELECT 1 FROM messages INDEXED BY localqueue_ready WHERE ${READY}) AS ready,
    (SELECT ${safe("available_at")} FROM messages INDEXED BY localqueue_delayed
      WHERE ${DUE} ORDER BY available_at LIMIT 1) AS due,
    (SELECT ${safe("lease_until")} FROM messages INDEXED BY localqueue_leased
      WHERE ${QUEUE} AND status = 1 AND lease_until IS NOT NULL ORDER BY lease_until LIMIT 1) AS expiry`,

  /** A delayed job whose time has come joins the ready ones: \`updated_at\` decides in which index it stands. */
  promote: `UPDATE messages NOT INDEXED SET updated_at = :now WHERE status = 0 AND id IN (
      SELECT id FROM messages INDEXED BY localqueue_delayed WHERE ${DUE} AND available_at <= :now
      ORDER BY available_at LIMIT ${SLICE})`,

  /** Leases that ran out: another delivery if the budget allows one, else a dead letter. */
  expire: `UPDATE messages NOT INDEXED SET
      status = CASE WHEN attempts < coalesce(:budget, max_attempts) THEN 0 ELSE 3 END,
      max_attempts = coalesce(:budget, max_attempts),
      available_at = CASE WHEN attempts < coalesce(:budget, max_attempts) THEN :now ELSE available_at END,
      failure_reason = CASE WHEN attempts < coalesce(:budget, max_attempts) THEN NULL
        ELSE coalesce(failure_reason, 'retries_exhausted') END,
      receipt = NULL, lease_until = NULL, releases = 0, updated_at = :now
    WHERE status = 1 AND lease_until <= :now AND id IN (
      SELECT id FROM messages INDEXED BY localqueue_leased WHERE ${QUEUE} AND status = 1 AND lease_until <= :now
      ORDER BY lease_until LIMIT ${SLICE})
    RETURNING status`,

  /** With a consumer's own budget: a job that has used it up is not delivered again. */
  exhaust: `UPDATE messages SET status = 3, max_attempts = :budget, failure_reason = 'retries_exhausted', updated_at = :now
    WHERE status = 0 AND attempts >= :budget AND id = (
      SELECT id FROM messages INDEXED BY localqueue_ready WHERE ${READY} ORDER BY id LIMIT 1)`,

  claim: `UPDATE messages SET ${claiming(":receipt")}
    WHERE status = 0 AND id = (
      SELECT id FROM messages INDEXED BY localqueue_ready WHERE ${READY} ORDER BY id LIMIT 1)
    RETURNING id, ${PAYLOAD} AS payload, ${safe("attempts")} AS attempts, job_id, ${safe("created_at")} AS created_at,
      trace_context`,

  /**
   * The first ready jobs, in the form in which a claim returns them; a large payload is left out. To claim them by a
   * list of their ids, with RETURNING, would take twice the time of this statement and the next one.
   */
  claimable: `SELECT id, CASE WHEN length(payload) <= ${JOINED_BYTES} THEN ${PAYLOAD} END AS payload,
      ${safe("attempts + 1")} AS attempts, job_id, ${safe("created_at")} AS created_at, trace_context,
      :budget IS NOT NULL AND attempts >= :budget AS spent
    FROM messages INDEXED BY localqueue_ready WHERE ${READY} ORDER BY id LIMIT :limit`,
  /** All ready jobs from the first of them to the last. */
  claimRange: `UPDATE messages INDEXED BY localqueue_ready SET ${claiming(":receipt || '-' || id")}
    WHERE ${READY} AND id BETWEEN :first AND :last`,

  /** For a payload that proved not to be text. */
  payload: "SELECT CAST(payload AS BLOB) AS payload FROM messages WHERE id = :id",

  ack: `UPDATE messages SET ${ACKED} WHERE ${HELD}`,
  ackRows: acking(ACK_ROWS),

  nack: `UPDATE messages SET
      status = CASE WHEN attempts < max_attempts THEN 0 ELSE 3 END,
      available_at = CASE WHEN attempts < max_attempts THEN :now + :delayMs ELSE :now END,
      failure_reason = CASE WHEN attempts < max_attempts THEN NULL ELSE :reason END,
      failure_category = NULL, last_error = :lastError, receipt = NULL, lease_until = NULL, releases = 0, updated_at = :now
    WHERE ${HELD} RETURNING status`,

  fail: `UPDATE messages SET status = 3, last_error = :lastError, failure_reason = :reason, failure_category = :category,
      receipt = NULL, lease_until = NULL, releases = 0, updated_at = :now WHERE ${HELD}`,

  release: `UPDATE messages SET
      status = CASE WHEN ${RELEASABLE} THEN 0 ELSE 3 END,
      available_at = CASE WHEN ${RELEASABLE} THEN :now + min(:initialMs * (1 << releases), :maxMs) ELSE :now END,
      failure_reason = CASE WHEN ${RELEASABLE} THEN NULL ELSE :reason END,
      attempts = CASE WHEN releases < ${MAX_RELEASES} THEN attempts - 1 ELSE attempts END,
      releases = min(releases + 1, ${MAX_RELEASES}),
      last_error = coalesce(:lastError, last_error), receipt = NULL, lease_until = NULL, updated_at = :now
    WHERE ${HELD} RETURNING status, available_at`,

  extend: `UPDATE messages SET lease_until = :now + :ms, updated_at = :now WHERE ${HELD}`,

  /** The engine's own renewal. An expired lease that nobody took is revived: under the write lock nothing can overlap. */
  renew: `UPDATE messages SET lease_until = :now + :ms, updated_at = :now
    WHERE id = :id AND queue = :queue AND status = 1 AND receipt = :receipt`,

  /** What the job's last expiry will be blamed on, when a handler overran its time and never came back. */
  markOverdue: `UPDATE messages SET failure_reason = 'handler_timeout'
    WHERE id = :id AND queue = :queue AND status = 1 AND receipt = :receipt`,

  remove: `DELETE FROM messages WHERE id = :id AND queue = :queue AND status = 0 AND ${UNTRACKED}`,
  discard: `DELETE FROM messages WHERE id = :id AND queue = :queue AND status = 3 AND ${UNTRACKED}`,
  isFailed: `SELECT 1 AS yes FROM messages WHERE id = :id AND queue = :queue AND status = 3`,

  /** A dead letter gets a fresh budget. */
  replay: `UPDATE messages SET status = 0, attempts = 0, releases = 0, available_at = :now, receipt = NULL,
      lease_until = NULL, last_error = NULL, failure_reason = NULL, failure_category = NULL, updated_at = :now
    WHERE id = :id AND queue = :queue AND status = 3`,
  /** An execution of the Python package that contains a replayed job is not complete any more. */
  reopenExecutions: `UPDATE event_bus_execution_runtime SET completed_at = NULL WHERE execution_id IN (
      SELECT execution_id FROM event_bus_execution_deliveries WHERE message_id = :id)`,

  /**
   * Walks along rows go in stretches: where one of so many rows ends, and how large its payloads are, which is read
   * off the rows' heads. The columns that are behind a large payload are dear to look at.
   */
  lastOfAll: `SELECT max(id) AS last FROM messages NOT INDEXED WHERE id > :after`,
  lastFailed: `SELECT max(id) AS last FROM messages INDEXED BY localqueue_failed
    WHERE queue = :queue AND status = 3 AND id > :after`,
  stretchOfAll: `SELECT max(id) AS last, total(bytes) AS bytes FROM (
    SELECT id, octet_length(payload) AS bytes FROM messages NOT INDEXED WHERE id > :after AND id <= :end
    ORDER BY id LIMIT :rows)`,
  stretchOfFailed: `SELECT max(id) AS last, total(bytes) AS bytes FROM (
    SELECT id, octet_length(payload) AS bytes FROM messages INDEXED BY localqueue_failed
    WHERE queue = :queue AND status = 3 AND id > :after AND id <= :end ORDER BY id LIMIT :rows)`,
  purgeAcked: `DELETE FROM messages NOT INDEXED WHERE id > :after AND id <= :last AND queue = :queue AND status = 2
    AND updated_at < :before AND ${UNTRACKED}`,
  purgeFailed: `DELETE FROM messages INDEXED BY localqueue_failed WHERE ${FAILED_STRETCH}
    AND (:before IS NULL OR updated_at < :before) AND ${OF_CAUSE} AND ${UNTRACKED}`,
  failedIn: `SELECT id FROM messages INDEXED BY localqueue_failed WHERE ${FAILED_STRETCH} AND ${OF_CAUSE} ORDER BY id`,
  createdAt: `SELECT ${safe("created_at")} AS created FROM messages WHERE id = :id`,

  stats: `SELECT ready, processing, acked, failed FROM localqueue_counts WHERE queue = :queue`,

  count: `INSERT INTO localqueue_counts (queue, ready, processing, acked, failed, clock)
    VALUES (:queue, :ready, :processing, :acked, :failed, :now)
    ON CONFLICT (queue) DO UPDATE SET ready = ready + excluded.ready, processing = processing + excluded.processing,
      acked = acked + excluded.acked, failed = failed + excluded.failed, clock = max(clock, excluded.clock)`,

  recordCommit: "UPDATE localqueue_commits SET number = :number WHERE arrival = :arrival AND engine = :engine",
  recordEngine: "INSERT INTO localqueue_commits (engine, number) VALUES (:engine, :number)",
  forgetEngines: "DELETE FROM localqueue_commits WHERE arrival <= :last",
  recordedCommit: "SELECT max(number) AS number FROM localqueue_commits WHERE engine = :engine",
  recordLook: "UPDATE localqueue_commits SET looks = looks + 1 WHERE engine = :engine",
  totalChanges: "SELECT total_changes() AS changes",

  latestLeased: `SELECT max(${safe("updated_at")}) AS latest FROM messages INDEXED BY localqueue_leased WHERE status = 1`,
  /** Rows written in what is the future. */
  aheadLeased: `SELECT id FROM messages INDEXED BY localqueue_leased
    WHERE status = 1 AND updated_at > :now LIMIT ${SLICE}`,
  aheadDelayed: `SELECT id, ${safe("available_at")} AS due FROM messages INDEXED BY localqueue_delayed
    WHERE ${QUEUE} AND status = 0 AND available_at > updated_at AND available_at >= :from AND updated_at > :now
    ORDER BY available_at LIMIT ${SLICE}`,
  pullBackLease: `UPDATE messages SET lease_until = :now + (lease_until - updated_at), updated_at = :now
    WHERE id = :id AND status = 1 AND updated_at > :now`,
  pullBackDelay: `UPDATE messages SET available_at = :now + (available_at - updated_at), updated_at = :now
    WHERE id = :id AND status = 0 AND available_at > updated_at AND updated_at > :now`,
  resetClock: `UPDATE localqueue_counts SET clock = :now WHERE clock > :now`,
  clock: `SELECT max(${safe("clock")}) AS clock FROM localqueue_counts`,
  queues: `SELECT queue FROM localqueue_counts`,

  dataVersion: "PRAGMA data_version",
  schemaVersion: "PRAGMA schema_version",
  pageCount: "PRAGMA page_count",
  freePages: "PRAGMA freelist_count",
  autoVacuum: "PRAGMA auto_vacuum",
};

export type Statements = { readonly [N in StatementName]: Statement };

/** Prepares all of them once per connection. */
export function prepareStatements(db: Database): Statements {
  const entries = Object.entries(SQL).map(([name, sql]) => [name, db.prepare(sql)] as const);
  return Object.fromEntries(entries) as unknown as Statements;
}
