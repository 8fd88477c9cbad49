import { countsOf, failedOf, jobOf } from "../job-rows.ts";
import type { FailedRecord, FailedRequest, JobKey, JobRecord, ListRequest, QueueCounts } from "../storage.ts";
import type { SideTask } from "./side-context.ts";
import { REASON, safe } from "./statements.ts";

/** Looks at jobs without claiming them. Each statement names its index, as those of the hot path do. */

const JOB = `id, status, ${["attempts", "available_at", "lease_until", "created_at", "updated_at"]
  .map((column) => `${safe(column)} AS ${column}`)
  .join(", ")}, CAST(job_id AS TEXT) AS job_id, CAST(last_error AS TEXT) AS last_error`;

/** A page of ids through an index whose order is another one: its entries are sorted, which there are few of. */
const pageOf = (index: string, which: string): string => `SELECT id FROM (SELECT id FROM messages INDEXED BY ${index}
    WHERE queue = :queue AND ${which} AND id > :afterId ORDER BY id LIMIT :limit)`;

const inIdOrder = (ids: string): string =>
  `SELECT ${JOB} FROM messages NOT INDEXED WHERE id IN (${ids}) ORDER BY id LIMIT :limit`;

export type LookName =
  | "findById"
  | "findByJobId"
  | "listReady"
  | "listProcessing"
  | "listAcked"
  | "listFailed"
  | "deadLetters"
  | "queues";

export const LOOK_SQL: Readonly<Record<LookName, string>> = {
  findById: `SELECT ${JOB} FROM messages NOT INDEXED WHERE id = :id AND queue = :queue AND status BETWEEN 0 AND 3`,
  findByJobId: `SELECT ${JOB} FROM messages INDEXED BY idx_messages_job_id
    WHERE queue = :queue AND job_id = :jobId AND status BETWEEN 0 AND 3`,

  listReady: inIdOrder(
    `${pageOf("localqueue_ready", "status = 0 AND available_at <= updated_at")}
    UNION ALL ${pageOf("localqueue_delayed", "status = 0 AND available_at > updated_at")}`,
  ),
  listProcessing: inIdOrder(pageOf("localqueue_leased", "status = 1")),
  listAcked: `SELECT ${JOB} FROM messages NOT INDEXED WHERE id > :afterId AND queue = :queue AND status = 2
    ORDER BY id LIMIT :limit`,
  listFailed: `SELECT ${JOB} FROM messages INDEXED BY localqueue_failed
    WHERE queue = :queue AND status = 3 AND id > :afterId ORDER BY id LIMIT :limit`,

  deadLetters: `SELECT ${JOB}, ${REASON} AS reason, CAST(failure_category AS TEXT) AS category,
      CAST(payload AS BLOB) AS payload
    FROM messages INDEXED BY localqueue_failed WHERE queue = :queue AND status = 3 AND id > :afterId
      AND (:reason IS NULL OR ${REASON} = :reason) AND (:category IS NULL OR failure_category = :category)
    ORDER BY id LIMIT :limit OFFSET :offset`,

  queues: `SELECT queue, ready, processing, acked, failed FROM localqueue_counts
    WHERE queue >= :prefix AND substr(queue, 1, length(:prefix)) = :prefix AND queue <> ''`,
};

const LIST_OF = { ready: "listReady", processing: "listProcessing", acked: "listAcked", failed: "listFailed" } as const;

export const find: SideTask<{ queue: string; by: JobKey }, JobRecord | undefined> = ({ queue, by }, context) => {
  const sql = "id" in by ? LOOK_SQL.findById : LOOK_SQL.findByJobId;
  const row = context
    .reader()
    .prepare(sql)
    .get({ queue, ...by });
  return row && jobOf(row);
};

export const list: SideTask<{ queue: string; which: ListRequest }, JobRecord[]> = ({ queue, which }, context) => {
  const { state, limit, afterId = 0 } = which;
  const rows = context.reader().prepare(LOOK_SQL[LIST_OF[state]]).all({ queue, limit, afterId });
  return rows.map(jobOf);
};

export const listFailed: SideTask<{ queue: string; which: FailedRequest }, FailedRecord[]> = (
  { queue, which },
  context,
) => {
  const { limit, offset = 0, afterId = 0, reason = null, category = null } = which;
  const parameters = { queue, limit, offset, afterId, reason, category };
  const rows = context.reader().prepare(LOOK_SQL.deadLetters).all(parameters);
  return rows.map((row) => failedOf(row, row["payload"] as Uint8Array));
};

export const queues: SideTask<{ prefix: string }, QueueCounts[]> = ({ prefix }, context) => {
  const rows = context.reader().prepare(LOOK_SQL.queues).all({ prefix });
  // SQLite compares texts by their bytes, in another order.
  return rows
    .map((row) => ({ queue: row["queue"] as string, ...countsOf(row) }))
    .sort((a, b) => (a.queue < b.queue ? -1 : 1));
};
