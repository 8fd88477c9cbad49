import fs from "node:fs";
import type { FileDiagnostics } from "../storage.ts";
import { doubtfulFilesystem, longWal, unsafeSqlite } from "./doubts.ts";
import { type Database, isSafeSqlite, type Row } from "./driver.ts";
import type { SideTask } from "./side-context.ts";
import { SQL, safe } from "./statements.ts";

const LEASED = "messages INDEXED BY localqueue_leased WHERE queue = :queue AND status = 1";
const READY = "messages INDEXED BY localqueue_ready WHERE queue = :queue AND status = 0 AND available_at <= updated_at";
const DELAYED =
  "messages INDEXED BY localqueue_delayed WHERE queue = :queue AND status = 0 AND available_at > updated_at";

/** How many leases are looked at for the one that was renewed the longest ago: those that end first. */
const LEASES_LOOKED_AT = 1000;

/** Reads single entries at the ends of the indexes; only leases that have run out are counted. */
export const DIAGNOSIS_SQL: string = `SELECT
  (SELECT ${safe("available_at")} FROM ${READY} ORDER BY id LIMIT 1) AS available,
  (SELECT ${safe("available_at")} FROM ${DELAYED} AND available_at <= :now ORDER BY available_at LIMIT 1) AS overdue,
  (SELECT ${safe("available_at")} FROM ${DELAYED} AND available_at > :now ORDER BY available_at LIMIT 1) AS due,
  (SELECT count(*) FROM ${LEASED} AND lease_until <= :now) AS expired,
  (SELECT ${safe("lease_until")} FROM ${LEASED} AND lease_until <= :now ORDER BY lease_until LIMIT 1) AS expiry,
  (SELECT min(updated_at) FROM (SELECT ${safe("updated_at")} AS updated_at FROM ${LEASED}
    ORDER BY lease_until LIMIT ${LEASES_LOOKED_AT})) AS renewal`;

/** What the file, and this queue in it, look like: one snapshot, nothing changed. */
export const diagnose: SideTask<{ queue: string }, FileDiagnostics> = ({ queue }, context) => {
  const { directory, file, driver } = context;
  const db = context.reader();
  const { counts, now, row, pages } = inSnapshot(db, () => {
    const first = db.prepare(SQL.stats).get({ queue });
    // The snapshot begins with the first read: a clock read before that would be behind the rows.
    const at = Date.now();
    return { counts: first, now: at, row: db.prepare(DIAGNOSIS_SQL).get({ queue, now: at }) ?? {}, pages: pagesOf(db) };
  });
  const count = (state: string): number => (counts?.[state] as number | undefined) ?? 0;
  const age = (since: unknown): number | null => (typeof since === "number" ? Math.max(0, now - since) : null);
  const available = [row["available"], row["overdue"]].filter((since) => typeof since === "number");
  const walSizeBytes = sizeOf(`${file}-wal`);
  const warnings = [unsafeSqlite(driver), doubtfulFilesystem(directory), longWal(walSizeBytes)];
  return {
    driver: driver.name,
    sqliteVersion: driver.sqliteVersion,
    sqliteSafe: isSafeSqlite(driver.sqliteVersion),
    observedAt: new Date(now).toISOString(),
    ...pages,
    databaseSizeBytes: sizeOf(file),
    walSizeBytes,
    shmSizeBytes: sizeOf(`${file}-shm`),
    // Each page in the log has a header of 24 bytes, the log one of 32.
    walPages: Math.max(0, Math.floor(((walSizeBytes ?? 0) - 32) / (pages.pageSize + 24))),
    ready: count("ready"),
    processing: count("processing"),
    acked: count("acked"),
    failed: count("failed"),
    oldestAvailableAgeMs: available.length === 0 ? null : age(Math.min(...available)),
    nextDueInMs: typeof row["due"] === "number" ? row["due"] - now : null,
    oldestProcessingUpdatedAgeMs: age(row["renewal"]),
    activeLeases: Math.max(0, count("processing") - Number(row["expired"])),
    expiredLeases: Number(row["expired"]),
    oldestExpiredLeaseAgeMs: age(row["expiry"]),
    warnings: warnings.filter((warning) => warning !== undefined),
  };
};

function pagesOf(db: Database): Pick<FileDiagnostics, "journalMode" | "pageCount" | "pageSize" | "freelistCount"> {
  const pragma = (name: string): Row[string] | undefined => db.prepare(`PRAGMA ${name}`).get()?.[name];
  return {
    journalMode: String(pragma("journal_mode")),
    pageCount: Number(pragma("page_count")),
    pageSize: Number(pragma("page_size")),
    freelistCount: Number(pragma("freelist_count")),
  };
}

function inSnapshot<T>(db: Database, read: () => T): T {
  db.exec("BEGIN");
  try {
    return read();
  } finally {
    if (db.inTransaction) db.exec("ROLLBACK");
  }
}

/** `stat` is safe: nothing may open these files. */
function sizeOf(file: string): number | null {
  return fs.statSync(file, { throwIfNoEntry: false })?.size ?? null;
}
