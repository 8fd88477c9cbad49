import { StorageError } from "../../errors.ts";
import type { IntegrityCheck, IntegrityReport } from "../care.ts";
import type { PostgresTarget } from "../postgres-target.ts";
import { longestRunning } from "../running.ts";
import type { StorageDiagnostics } from "../storage.ts";
import type { Client } from "./client.ts";
import type { Origin } from "./order.ts";
import type { Row } from "./rows.ts";
import { TABLES } from "./schema.ts";

/** A snapshot that somebody has kept open for so long holds up the clearing away of what was changed since. */
const OLD_SNAPSHOT_MS = 10 * 60_000;
/** How many leases are looked at for the one that was renewed the longest ago: those that end first. */
const LEASES_LOOKED_AT = 1000;

/** Looks after the whole schema: reports, checks, tidies up. */
export class Care {
  readonly #client: Client;
  readonly #target: PostgresTarget;

  constructor(client: Client, target: PostgresTarget) {
    this.#client = client;
    this.#target = target;
  }

  async diagnostics({ queue, fsync }: Origin, lockMs: number): Promise<StorageDiagnostics> {
    const [row] = (await this.#client.read(diagnosis(this.#target.schema), [queue])) as [Row];
    const number = (name: string): number | null => row[name] as number | null;
    const age = (name: string): number | null => ageOf(number(name));
    const expired = number("expired") as number;
    const processing = number("processing") as number;
    const snapshotMs = number("snapshot");
    return {
      serverVersion: row["version"] as string,
      databaseSchema: this.#target.schema,
      observedAt: new Date(number("now") as number).toISOString(),
      databaseSizeBytes: number("size"),
      ready: number("ready") as number,
      processing,
      acked: number("acked") as number,
      failed: number("failed") as number,
      oldestAvailableAgeMs: age("available"),
      nextDueInMs: number("due"),
      oldestProcessingUpdatedAgeMs: age("renewal"),
      activeLeases: Math.max(0, processing - expired),
      expiredLeases: expired,
      oldestExpiredLeaseAgeMs: age("expiry"),
      durabilityMode: fsync === undefined ? (row["commit"] === "off" ? "normal" : "full") : fsync ? "full" : "normal",
      busyTimeoutMs: lockMs,
      ...longestRunning(this.#client.keeper.consumers, queue),
      warnings: snapshotMs !== null && snapshotMs > OLD_SNAPSHOT_MS ? [oldSnapshot(snapshotMs)] : [],
    };
  }

  /** Compares what the tables say of each other, and has the server look into the indexes where it can. */
  async check(check: IntegrityCheck, signal: AbortSignal): Promise<IntegrityReport> {
    const { mode, maxErrors, onProgress } = check;
    const startedAt = performance.now();
    const schema = `"${this.#target.schema}"`;
    const messages: string[] = [];
    const parts = mode === "full" ? (["pages", "references", "counts"] as const) : (["references", "counts"] as const);
    for (const [done, phase] of parts.entries()) {
      onProgress?.({ phase, done, total: parts.length });
      const rows = await this.#client.read(CHECKS[phase].replaceAll("schema.", `${schema}.`), [], signal);
      messages.push(...rows.map((row) => row["message"] as string));
    }
    return {
      schemaVersion: 1,
      mode,
      maxErrors,
      ok: messages.length === 0,
      messages: messages.length === 0 ? ["ok"] : messages.slice(0, maxErrors),
      elapsedMs: performance.now() - startedAt,
    };
  }

  async vacuum(signal: AbortSignal): Promise<void> {
    const schema = `"${this.#target.schema}"`;
    const [row] = await this.#client.read(`SELECT count(*) AS held FROM ${schema}.messages WHERE status = 1`, []);
    if (row?.["held"] !== 0) {
      throw new StorageError(
        "BUSY",
        "Jobs are being processed, and rewriting the tables would hold them up. Stop the workers, or leave it to autovacuum.",
      );
    }
    for (const table of TABLES) await this.#client.read(`VACUUM (FULL, ANALYZE) ${schema}.${table}`, [], signal);
  }
}

function ageOf(ms: number | null): number | null {
  return ms === null ? null : Math.max(0, ms);
}

function oldSnapshot(ms: number): string {
  return (
    `A transaction has been open for ${Math.round(ms / 60_000)} minutes in this database: rows that were changed since ` +
    "cannot be cleared away, and claims become slow. Look for it in pg_stat_activity."
  );
}

/** Reads single entries at the ends of the indexes; only leases that have run out are counted. */
function diagnosis(name: string): string {
  const schema = `"${name}"`;
  const leased = `${schema}.messages WHERE queue = $1 AND status = 1`;
  const ready = `${schema}.messages WHERE queue = $1 AND status = 0 AND available_at <= updated_at`;
  const delayed = `${schema}.messages WHERE queue = $1 AND status = 0 AND available_at > updated_at`;
  return `WITH clock AS MATERIALIZED (
      SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
    SELECT now, current_setting('server_version') AS version, current_setting('synchronous_commit') AS commit,
      (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
        WHERE relnamespace = '${schema}'::regnamespace AND relkind = 'r') AS size,
      now - least((SELECT available_at FROM ${ready} ORDER BY id LIMIT 1),
        (SELECT available_at FROM ${delayed} AND available_at <= now ORDER BY available_at LIMIT 1)) AS available,
      (SELECT available_at FROM ${delayed} AND available_at > now ORDER BY available_at LIMIT 1) - now AS due,
      (SELECT count(*) FROM ${leased} AND lease_until <= now) AS expired,
      now - (SELECT lease_until FROM ${leased} AND lease_until <= now ORDER BY lease_until LIMIT 1) AS expiry,
      now - (SELECT min(updated_at) FROM (
        SELECT updated_at FROM ${leased} ORDER BY lease_until LIMIT ${LEASES_LOOKED_AT}) AS first) AS renewal,
      (SELECT floor(extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000)::bigint FROM pg_stat_activity
        WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()) AS snapshot,
      counts.*
    FROM clock, (SELECT coalesce(sum(ready), 0)::bigint AS ready, coalesce(sum(processing), 0)::bigint AS processing,
      coalesce(sum(acked), 0)::bigint AS acked, coalesce(sum(failed), 0)::bigint AS failed
      FROM ${schema}.counts WHERE queue = $1) AS counts`;
}

/** What is wrong, as texts. */
const CHECKS = {
  /** Each row is read. */
  pages: `SELECT 'job ' || id || ' is in an impossible state' AS message FROM schema.messages
    WHERE octet_length(payload) < 0 OR status NOT BETWEEN 0 AND 3 OR (status = 1) <> (receipt IS NOT NULL)
      OR (status = 1) <> (lease_until IS NOT NULL) OR attempts < 0`,
  references: `SELECT 'the link from ' || parent_message_id || ' to ' || child_message_id || ' leads nowhere' AS message
    FROM schema.event_bus_delivery_edges
    WHERE NOT EXISTS (SELECT 1 FROM schema.messages WHERE id = parent_message_id)
      OR NOT EXISTS (SELECT 1 FROM schema.messages WHERE id = child_message_id)`,
  counts: `SELECT 'the counts of queue ' || queue || ' are not those of its jobs' AS message FROM (
      SELECT queue, sum(ready) AS ready, sum(processing) AS processing, sum(acked) AS acked, sum(failed) AS failed
      FROM (
        SELECT queue, ready, processing, acked, failed FROM schema.counts
        UNION ALL SELECT queue, -count(*) FILTER (WHERE status = 0), -count(*) FILTER (WHERE status = 1),
          -count(*) FILTER (WHERE status = 2), -count(*) FILTER (WHERE status = 3)
        FROM schema.messages GROUP BY queue) AS both_sides
      GROUP BY queue) AS difference
    WHERE ready <> 0 OR processing <> 0 OR acked <> 0 OR failed <> 0`,
} as const;
