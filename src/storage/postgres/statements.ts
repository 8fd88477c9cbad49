import { FAILURE_REASONS, type JobEvent, MAX_RELEASES } from "../../state.ts";
import { HEAD_START_MS } from "../head-start.ts";

/**
 * The SQL of the transitions: one statement for each verb, for as many jobs as there are at a time, in arrays. Each
 * reads the clock of the database once, when it begins; in the conditions that reading is a value, so that indexes apply.
 */

/** Rows that a claim moves along before it takes its own. */
export const SLICE = 100;

const CLOCK = `clock AS MATERIALIZED (
  SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)`;
const NOW = "(SELECT now FROM clock)";

/** Why a job is a dead letter, as far as it is known. */
export const REASON: string = `CASE WHEN failure_reason IN (${FAILURE_REASONS.map((reason) => `'${reason}'`).join(", ")})
  THEN failure_reason ELSE 'legacy_unknown' END`;

/** Who may end or extend a delivery: the holder of the receipt, until the lease ends. */
const HELD = `m.id = given.id AND m.queue = given.queue AND m.status = 1 AND m.receipt = given.receipt
  AND m.lease_until > ${NOW}`;

/** Not a dead letter when its holder gives it back. */
const RELEASABLE = `(m.releases < ${MAX_RELEASES} OR m.attempts < m.max_attempts)`;

const OVER = `receipt = NULL, lease_until = NULL, updated_at = ${NOW}`;

export type Ending = Extract<JobEvent, "ack" | "nack" | "fail" | "release">;

/** How a delivery ends, by what its holder says. */
const ENDINGS: { readonly [E in Ending]: string } = {
  ack: `status = 2, ${OVER}`,
  nack: `status = CASE WHEN m.attempts < m.max_attempts THEN 0 ELSE 3 END,
    available_at = ${NOW} + CASE WHEN m.attempts < m.max_attempts THEN given.ms ELSE 0 END,
    failure_reason = CASE WHEN m.attempts < m.max_attempts THEN NULL ELSE given.reason END,
    failure_category = NULL, last_error = given.error, releases = 0, ${OVER}`,
  fail: `status = 3, last_error = given.error, failure_reason = given.reason, failure_category = given.category,
    releases = 0, ${OVER}`,
  release: `status = CASE WHEN ${RELEASABLE} THEN 0 ELSE 3 END,
    available_at = ${NOW}
      + CASE WHEN ${RELEASABLE} THEN least(given.ms * (1::bigint << m.releases), given.max_ms) ELSE 0 END,
    failure_reason = CASE WHEN ${RELEASABLE} THEN NULL ELSE given.reason END,
    attempts = CASE WHEN m.releases < ${MAX_RELEASES} THEN m.attempts - 1 ELSE m.attempts END,
    releases = least(m.releases + 1, ${MAX_RELEASES}), last_error = coalesce(given.error, m.last_error), ${OVER}`,
};

/** What is known of the deliveries that are to be ended, in arrays. */
const GIVEN_ENDINGS = `given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
    $8::text[]) WITH ORDINALITY AS given (id, receipt, queue, ms, max_ms, error, reason, category, n))`;

export interface Statements {
  readonly put: string;
  readonly advanceIds: string;
  readonly known: string;
  readonly end: { readonly [E in Ending]: string };
  readonly extend: string;
  readonly renew: string;
  readonly markOverdue: string;
  readonly stir: string;
  readonly exhaust: string;
  readonly claim: string;
  readonly look: string;
  readonly lockJobs: string;
  readonly lockQueue: string;
  readonly load: string;
  readonly dispatch: string;
  readonly knownEvents: string;
  readonly link: string;
  readonly track: string;
  readonly remove: string;
  readonly discard: string;
  readonly isFailed: string;
  readonly replay: string;
  readonly replayFailed: string;
  readonly failedLeft: string;
  readonly purgeAcked: string;
  readonly purgeFailed: string;
  readonly lastId: string;
  readonly stats: string;
  readonly drawTogether: string;
  readonly queues: string;
  readonly mark: string;
  readonly unmarked: string;
  readonly lockMark: string;
  readonly forgetMarks: string;
  readonly latestWritten: string;
  readonly pullBackLeases: string;
  readonly pullBackDelays: string;
  readonly resetClock: string;
}

const bySchema = new Map<string, Statements>();

export function statementsOf(schema: string): Statements {
  let statements = bySchema.get(schema);
  if (statements === undefined) {
    statements = write(`"${schema}"`);
    bySchema.set(schema, statements);
  }
  return statements;
}

function write(schema: string): Statements {
  const messages = `${schema}.messages`;
  const edges = `${schema}.event_bus_delivery_edges`;
  const deliveries = `${schema}.event_bus_execution_deliveries`;

  /** Counts the rows that a statement moved: `from` and each of the states in which they are now. */
  const counting = (rows: string, from: "processing" | "failed" | undefined, queue = "queue"): string => {
    const now = (status: number): string => `count(*) FILTER (WHERE status = ${status})`;
    const column = (name: string, status: number): string => `${now(status)}${from === name ? " - count(*)" : ""}`;
    return `counted AS (INSERT INTO ${schema}.counts (queue, ready, processing, acked, failed, clock)
      SELECT ${queue}, ${column("ready", 0)}, ${column("processing", 1)}, ${now(2)}, ${column("failed", 3)}, ${NOW}
      FROM ${rows} GROUP BY ${queue})`;
  };

  /** Rows of executions of the Python package, which nothing deletes; and what goes with those that are deleted. */
  const UNTRACKED = `NOT EXISTS (SELECT 1 FROM ${deliveries} WHERE message_id = m.id)`;
  const unlinking = `unlinked AS (DELETE FROM ${edges}
      WHERE parent_message_id IN (SELECT id FROM gone) OR child_message_id IN (SELECT id FROM gone))`;
  const uncounting = (column: string): string => `counted AS (INSERT INTO ${schema}.counts (queue, ${column}, clock)
      SELECT queue, -count(*), ${NOW} FROM gone GROUP BY queue)`;

  const end = (ending: Ending): string => `WITH ${CLOCK}, ${GIVEN_ENDINGS},
    moved AS (UPDATE ${messages} m SET ${ENDINGS[ending]} FROM given WHERE ${HELD}
      RETURNING given.n, m.queue, m.status, m.available_at),
    ${counting("moved", "processing")}
    SELECT n, status, available_at FROM moved`;

  const removing = (status: number, column: string): string => `WITH ${CLOCK},
    gone AS (DELETE FROM ${messages} m WHERE id = $1 AND queue = $2 AND status = ${status} AND ${UNTRACKED}
      RETURNING id, queue), ${unlinking}, ${uncounting(column)}
    SELECT id FROM gone`;

  const OF_CAUSE = `($5::text IS NULL OR ${REASON} = $5) AND ($6::text IS NULL OR failure_category = $6)`;

  const REPLAYED = `status = 0, attempts = 0, releases = 0, available_at = ${NOW}, last_error = NULL,
    failure_reason = NULL, failure_category = NULL, ${OVER}`;
  /** An execution of the Python package that contains a replayed job is not complete any more. */
  const reopening = `reopened AS (UPDATE ${schema}.event_bus_execution_runtime SET completed_at = NULL
      WHERE execution_id IN (SELECT execution_id FROM ${deliveries} WHERE message_id IN (SELECT id FROM moved)))`;

  return {
    /**
     * With ids in their order; a job that is known is left out. The payloads are one behind the other in $1. All clients
     * add names in the same order: of two with the same names one waits for the other, not each for the other.
     */
    put: `WITH ${CLOCK},
      given AS MATERIALIZED (
        SELECT nextval((SELECT pg_get_serial_sequence('${messages}', 'id')::regclass)) AS id, given.*
        FROM unnest($2::text[], $3::int[], $4::int[], $5::bigint[], $6::bigint[], $7::text[], $8::text[])
          WITH ORDINALITY AS given (queue, start, length, max_attempts, delay, job_id, context, n)
        ORDER BY n),
      added AS (
        INSERT INTO ${messages} (id, queue, payload, status, attempts, max_attempts, available_at, job_id,
          trace_context, created_at, updated_at)
        SELECT id, queue, substr($1::bytea, start, length), 0, 0, max_attempts, ${NOW} + delay, job_id, context, ${NOW},
          ${NOW}
        FROM given ORDER BY queue, job_id, n
        ON CONFLICT (queue, job_id) WHERE job_id IS NOT NULL DO NOTHING RETURNING id, queue, job_id, status),
      ${counting("added", undefined)}
      SELECT id, queue, job_id FROM added ORDER BY id`,
    /** With some to spare: who advances them a little later sets others back, but hardly below what is stored by then. */
    advanceIds: `SELECT setval(pg_get_serial_sequence('${messages}', 'id'), last + 10000) FROM (
        SELECT max(id) AS last FROM ${messages}) AS ids
      WHERE last >= nextval(pg_get_serial_sequence('${messages}', 'id'))`,
    known: `SELECT queue, job_id, id FROM ${messages}
      WHERE (queue, job_id) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND job_id IS NOT NULL`,

    end: { ack: end("ack"), nack: end("nack"), fail: end("fail"), release: end("release") },
    extend: `WITH ${CLOCK},
      given AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])
        WITH ORDINALITY AS given (id, receipt, queue, ms, n))
      UPDATE ${messages} m SET lease_until = ${NOW} + given.ms, updated_at = ${NOW} FROM given WHERE ${HELD}
      RETURNING given.n, m.lease_until`,
    /**
     * For the keeper of the leases alone: one that expired and that nobody took is revived, which overlaps with nothing,
     * since the row is locked. What somebody is just changing is told as held, without a new end.
     */
    renew: `WITH ${CLOCK},
      given AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])
        WITH ORDINALITY AS given (id, receipt, queue, ms, n)),
      held AS MATERIALIZED (SELECT m.id, given.n FROM given JOIN ${messages} m
        ON m.id = given.id AND m.queue = given.queue AND m.status = 1 AND m.receipt = given.receipt),
      free AS MATERIALIZED (SELECT m.id FROM ${messages} m WHERE m.id IN (SELECT id FROM held)
        FOR NO KEY UPDATE SKIP LOCKED),
      renewed AS (UPDATE ${messages} m SET lease_until = ${NOW} + given.ms, updated_at = ${NOW}
        FROM given WHERE m.id = given.id AND m.id IN (SELECT id FROM free) AND m.queue = given.queue AND m.status = 1
          AND m.receipt = given.receipt
        RETURNING given.n, m.lease_until)
      SELECT held.n, renewed.lease_until FROM held LEFT JOIN renewed ON renewed.n = held.n
        WHERE renewed.n IS NOT NULL OR held.id NOT IN (SELECT id FROM free)`,
    /** What the job's last expiry will be blamed on, when a handler overran its time and never came back. */
    markOverdue: `UPDATE ${messages} SET failure_reason = 'handler_timeout'
      WHERE id = $1 AND queue = $2 AND status = 1 AND receipt = $3`,

    /**
     * Leases that ran out end: another delivery if the budget ($2, or the job's own) allows one, else a dead letter. And
     * delayed jobs whose time has come join the ready ones: \`updated_at\` decides in which index they stand.
     * Those that were left to others, until $3, wait a little longer.
     */
    stir: `WITH ${CLOCK},
      over AS MATERIALIZED (SELECT id FROM ${messages} WHERE queue = $1 AND status = 1 AND lease_until <= ${NOW}
        ORDER BY lease_until LIMIT ${SLICE} FOR NO KEY UPDATE SKIP LOCKED),
      moved AS (UPDATE ${messages} m SET
          status = CASE WHEN attempts < coalesce($2::bigint, max_attempts) THEN 0 ELSE 3 END,
          max_attempts = coalesce($2, max_attempts),
          available_at = CASE WHEN attempts < coalesce($2, max_attempts) THEN ${NOW} ELSE available_at END,
          failure_reason = CASE WHEN attempts < coalesce($2, max_attempts) THEN NULL
            ELSE coalesce(failure_reason, 'retries_exhausted') END,
          releases = 0, ${OVER}
        WHERE id IN (SELECT id FROM over) AND status = 1 AND lease_until <= ${NOW} RETURNING queue, status),
      due AS MATERIALIZED (SELECT id FROM ${messages}
        WHERE queue = $1 AND status = 0 AND available_at > updated_at AND available_at <= ${NOW}
          AND NOT (available_at = ANY ($3::bigint[]) AND available_at > ${NOW} - ${HEAD_START_MS})
        ORDER BY available_at LIMIT ${SLICE} FOR NO KEY UPDATE SKIP LOCKED),
      promoted AS (UPDATE ${messages} SET updated_at = ${NOW}
        WHERE id IN (SELECT id FROM due) AND status = 0 AND available_at > updated_at RETURNING 1),
      ${counting("moved", "processing")}
      SELECT (SELECT count(*) FROM moved) AS expired, (SELECT count(*) FROM promoted) AS promoted, ${NOW} AS now`,
    /** With a consumer's own budget $2: jobs that have used it up are not delivered again. */
    exhaust: `WITH ${CLOCK},
      head AS MATERIALIZED (SELECT id FROM ${messages}
        WHERE queue = $1 AND status = 0 AND available_at <= updated_at
        ORDER BY id LIMIT ${SLICE} FOR NO KEY UPDATE SKIP LOCKED),
      moved AS (UPDATE ${messages} m SET status = 3, max_attempts = $2::bigint, failure_reason = 'retries_exhausted',
          updated_at = ${NOW}
        WHERE id IN (SELECT id FROM head) AND status = 0 AND attempts >= $2 RETURNING queue),
      counted AS (INSERT INTO ${schema}.counts (queue, ready, failed, clock)
        SELECT queue, -count(*), count(*), ${NOW} FROM moved GROUP BY queue)
      SELECT count(*) AS exhausted FROM moved`,
    /** The first ready jobs that nobody else is just taking: $2 of them, for $3 ms, under the budget $4. */
    claim: `WITH ${CLOCK},
      head AS MATERIALIZED (SELECT id FROM ${messages}
        WHERE queue = $1 AND status = 0 AND available_at <= updated_at
        ORDER BY id LIMIT $2::bigint FOR NO KEY UPDATE SKIP LOCKED),
      moved AS (UPDATE ${messages} SET status = 1, attempts = attempts + 1, max_attempts = coalesce($4, max_attempts),
          receipt = gen_random_uuid()::text, lease_until = ${NOW} + $3::bigint, updated_at = ${NOW}
        WHERE id IN (SELECT id FROM head) AND status = 0 AND ($4::bigint IS NULL OR attempts < $4)
        RETURNING id, queue, payload, receipt, attempts, job_id, lease_until, created_at, trace_context),
      counted AS (INSERT INTO ${schema}.counts (queue, ready, processing, clock)
        SELECT queue, -count(*), count(*), ${NOW} FROM moved GROUP BY queue)
      SELECT id, encode(payload, 'hex') AS payload, receipt, attempts, job_id, lease_until, created_at, trace_context
      FROM moved ORDER BY id`,

    /** What claims would find in these queues, and in how many milliseconds there will be more. */
    look: `WITH ${CLOCK}
      SELECT given.queue, ${NOW} AS now,
        EXISTS (SELECT 1 FROM ${messages} m
          WHERE m.queue = given.queue AND status = 0 AND available_at <= updated_at) AS ready,
        (SELECT available_at FROM ${messages} m
          WHERE m.queue = given.queue AND status = 0 AND available_at > updated_at
          ORDER BY available_at LIMIT 1) - ${NOW} AS due_in,
        (SELECT lease_until FROM ${messages} m WHERE m.queue = given.queue AND status = 1 AND lease_until IS NOT NULL
          ORDER BY lease_until LIMIT 1) - ${NOW} AS ends_in
      FROM unnest($1::text[]) AS given (queue)`,

    /** Whoever cannot write is not told that the queue is full, but that it is locked. */
    lockJobs: `LOCK TABLE ${messages} IN ROW EXCLUSIVE MODE`,
    /** Of those who add jobs under a limit one at a time counts them. */
    lockQueue: `SELECT pg_advisory_xact_lock(hashtextextended('localqueue limit of ${schema}.' || $1::text, 0))`,
    load: `SELECT coalesce(sum(ready + processing), 0)::bigint AS load FROM ${schema}.counts WHERE queue = $1`,

    dispatch: `WITH ${CLOCK},
      added AS (
        INSERT INTO ${messages} (queue, payload, status, attempts, max_attempts, available_at, job_id, dedup_key,
          dedup_fingerprint, trace_context, created_at, updated_at)
        SELECT queue, substr($1::bytea, start, length), 0, 0, max_attempts, ${NOW}, job_id, key, fingerprint, context,
          ${NOW}, ${NOW}
        FROM unnest($2::text[], $3::int[], $4::int[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[])
          WITH ORDINALITY AS given (queue, start, length, max_attempts, job_id, key, fingerprint, context, n)
        ORDER BY n
        ON CONFLICT DO NOTHING RETURNING id, queue, job_id, dedup_key, status),
      ${counting("added", undefined)}
      SELECT id, queue, job_id, dedup_key FROM added ORDER BY id`,
    knownEvents: `SELECT id, queue, job_id, dedup_key, dedup_fingerprint FROM ${messages}
        WHERE (queue, job_id) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND job_id IS NOT NULL
      UNION SELECT id, queue, job_id, dedup_key, dedup_fingerprint FROM ${messages}
        WHERE (queue, dedup_key) IN (SELECT * FROM unnest($1::text[], $3::text[])) AND dedup_key IS NOT NULL`,
    link: `INSERT INTO ${edges} (parent_message_id, child_message_id)
      SELECT * FROM unnest($1::bigint[], $2::bigint[]) ON CONFLICT DO NOTHING`,
    /** What belongs to an execution of the Python package belongs there with all that came of it before. */
    track: `WITH RECURSIVE descendant (root, id) AS (
        SELECT parent, child FROM unnest($1::bigint[], $2::bigint[]) AS given (parent, child)
          WHERE EXISTS (SELECT 1 FROM ${deliveries} WHERE message_id = parent)
        UNION SELECT root, child_message_id FROM descendant JOIN ${edges} ON parent_message_id = descendant.id)
      INSERT INTO ${deliveries} (execution_id, message_id)
        SELECT DISTINCT execution_id, descendant.id FROM descendant JOIN ${deliveries} ON message_id = root
      ON CONFLICT DO NOTHING`,

    remove: removing(0, "ready"),
    discard: removing(3, "failed"),
    isFailed: `SELECT 1 FROM ${messages} WHERE id = $1 AND queue = $2 AND status = 3`,
    replay: `WITH ${CLOCK},
      moved AS (UPDATE ${messages} SET ${REPLAYED} WHERE id = $1 AND queue = $2 AND status = 3
        RETURNING id, queue, status),
      ${reopening}, ${counting("moved", "failed")}
      SELECT id FROM moved`,

    /** Walks along rows go in stretches: $1 queue, $2 after which id, $3 up to which, $4 how many. */
    replayFailed: `WITH ${CLOCK},
      stretch AS MATERIALIZED (SELECT id FROM ${messages}
        WHERE queue = $1 AND status = 3 AND id > $2 AND id <= $3 AND ${OF_CAUSE}
        ORDER BY id LIMIT $4::bigint FOR NO KEY UPDATE),
      moved AS (UPDATE ${messages} SET ${REPLAYED}
        WHERE id IN (SELECT id FROM stretch) AND status = 3 RETURNING id, queue, status),
      ${reopening}, ${counting("moved", "failed")}
      SELECT (SELECT max(id) FROM stretch) AS last, (SELECT count(*) FROM moved) AS changed`,
    failedLeft: `SELECT id FROM ${messages}
      WHERE queue = $1 AND status = 3 AND id > $2 AND id <= $3 AND ${OF_CAUSE} LIMIT $4::bigint`,
    purgeAcked: `WITH ${CLOCK},
      stretch AS MATERIALIZED (SELECT id, created_at FROM ${messages} WHERE id > $2 AND id <= $3
        ORDER BY id LIMIT $4::bigint),
      gone AS (DELETE FROM ${messages} m WHERE id > $2 AND id <= (SELECT max(id) FROM stretch) AND queue = $1
          AND status = 2 AND updated_at < $5::bigint AND ${UNTRACKED}
        RETURNING id, queue),
      ${unlinking}, ${uncounting("acked")}
      SELECT (SELECT max(id) FROM stretch) AS last, (SELECT count(*) FROM gone) AS changed,
        (SELECT created_at FROM stretch ORDER BY id DESC LIMIT 1) AS created`,
    purgeFailed: `WITH ${CLOCK},
      stretch AS MATERIALIZED (SELECT id, created_at FROM ${messages}
        WHERE queue = $1 AND status = 3 AND id > $2 AND id <= $3 ORDER BY id LIMIT $4::bigint),
      gone AS (DELETE FROM ${messages} m WHERE id IN (SELECT id FROM stretch) AND status = 3 AND ${OF_CAUSE}
          AND ($7::bigint IS NULL OR updated_at < $7) AND ${UNTRACKED}
        RETURNING id, queue),
      ${unlinking}, ${uncounting("failed")}
      SELECT (SELECT max(id) FROM stretch) AS last, (SELECT count(*) FROM gone) AS changed,
        (SELECT created_at FROM stretch ORDER BY id DESC LIMIT 1) AS created`,
    lastId: `WITH ${CLOCK} SELECT coalesce((SELECT max(id) FROM ${messages}), 0) AS last, ${NOW} AS now`,

    stats: `SELECT coalesce(sum(ready), 0)::bigint AS ready, coalesce(sum(processing), 0)::bigint AS processing,
        coalesce(sum(acked), 0)::bigint AS acked, coalesce(sum(failed), 0)::bigint AS failed, count(*) AS parts
      FROM ${schema}.counts WHERE queue = $1`,
    /** Many rows of counts become one, of those that nobody else is drawing together. */
    drawTogether: `WITH parts AS (DELETE FROM ${schema}.counts WHERE ctid = ANY (ARRAY(
          SELECT ctid FROM ${schema}.counts WHERE queue = $1 LIMIT 5000 FOR UPDATE SKIP LOCKED))
        RETURNING queue, ready, processing, acked, failed, clock)
      INSERT INTO ${schema}.counts (queue, ready, processing, acked, failed, clock)
        SELECT queue, sum(ready), sum(processing), sum(acked), sum(failed), max(clock) FROM parts GROUP BY queue`,
    queues: `SELECT queue, sum(ready)::bigint AS ready, sum(processing)::bigint AS processing,
        sum(acked)::bigint AS acked, sum(failed)::bigint AS failed
      FROM ${schema}.counts WHERE queue >= $1 AND starts_with(queue, $1) GROUP BY queue`,

    /** Only what has changed something is marked. */
    mark: `INSERT INTO ${schema}.commits AS mark (client, number)
      SELECT $1::text, $2::bigint WHERE pg_current_xact_id_if_assigned() IS NOT NULL
      ON CONFLICT (client) DO UPDATE SET number = excluded.number, made_at = now() RETURNING number`,
    unmarked: `INSERT INTO ${schema}.commits (client, number) VALUES ($1, 0) ON CONFLICT DO NOTHING`,
    lockMark: `SELECT number FROM ${schema}.commits WHERE client = $1 FOR UPDATE`,
    forgetMarks: `DELETE FROM ${schema}.commits WHERE made_at < now() - interval '1 day'`,

    latestWritten: `WITH ${CLOCK} SELECT ${NOW} AS now, greatest((SELECT max(clock) FROM ${schema}.counts),
      (SELECT max(updated_at) FROM ${messages} WHERE status = 1)) AS latest`,
    /** Rows that were written in what is now the future keep their remaining length. */
    pullBackLeases: `WITH ${CLOCK}, ahead AS MATERIALIZED (SELECT id FROM ${messages}
        WHERE status = 1 AND updated_at > ${NOW} LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED)
      UPDATE ${messages} SET lease_until = ${NOW} + (lease_until - updated_at), updated_at = ${NOW}
        WHERE id IN (SELECT id FROM ahead) AND status = 1 AND updated_at > ${NOW} RETURNING id`,
    pullBackDelays: `WITH ${CLOCK}, ahead AS MATERIALIZED (SELECT id FROM ${messages}
        WHERE status = 0 AND available_at > updated_at AND updated_at > ${NOW} LIMIT 1000
        FOR NO KEY UPDATE SKIP LOCKED)
      UPDATE ${messages} SET available_at = ${NOW} + (available_at - updated_at), updated_at = ${NOW}
        WHERE id IN (SELECT id FROM ahead) AND status = 0 AND available_at > updated_at AND updated_at > ${NOW}
        RETURNING id`,
    resetClock: `WITH ${CLOCK} UPDATE ${schema}.counts SET clock = ${NOW} WHERE clock > ${NOW}`,
  };
}
