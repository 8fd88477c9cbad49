import { StorageError } from "../../errors.ts";
import type { IntegrityCheck, IntegrityMode, IntegrityPart, IntegrityReport } from "../care.ts";
import { type Database, type Row, storageErrorCode } from "./driver.ts";
import { missingNames } from "./schema.ts";
import type { SideContext, SideTask } from "./side-context.ts";
import { safe } from "./statements.ts";

const REFERENCES = `SELECT "table", rowid, parent, fkid FROM pragma_foreign_key_check LIMIT :limit`;

const STATES = ["ready", "processing", "acked", "failed"] as const;

/** Queues whose counts are not those of their rows, with both. A queue without jobs need not have any. */
const WRONG_COUNTS = `SELECT queue, ${STATES.map((state) => `${safe(`sum(kept_${state})`)} AS kept_${state}, sum(${state}) AS ${state}`).join(", ")}
  FROM (
    SELECT queue, ${STATES.map((state) => `${state} AS kept_${state}, 0 AS ${state}`).join(", ")} FROM localqueue_counts
    UNION ALL
    SELECT queue, ${STATES.map((_, status) => `0, count(*) FILTER (WHERE status = ${status})`).join(", ")}
      FROM messages NOT INDEXED GROUP BY queue)
  GROUP BY queue HAVING ${STATES.map((state) => `sum(kept_${state}) <> sum(${state})`).join(" OR ")}
  ORDER BY queue LIMIT :limit`;

/** Finds what is wrong in one part; at most so many texts. */
type Part = (db: Database, limit: number, mode: IntegrityMode) => string[];

const PARTS: { readonly [P in IntegrityPart]: Part } = {
  pages: findDamage,
  references: (db, limit) => db.prepare(REFERENCES).all({ limit }).map(describeReference),
  counts: findWrongCounts,
  layout: (db) => missingNames(db).map((name) => `layout: ${name} is missing; the next write makes it anew`),
};

/** Looks through the whole file as it is at one moment, and changes nothing. */
export const checkIntegrity: SideTask<Omit<IntegrityCheck, "onProgress">, IntegrityReport> = (request, context) => {
  const { mode, maxErrors } = request;
  const startedAt = performance.now();
  const db = context.reader();
  const found: string[] = [];
  const parts = Object.entries(PARTS);
  db.exec("BEGIN");
  try {
    for (const [done, [phase, part]] of parts.entries()) {
      endIfCancelled(context);
      context.progress({ phase, done, total: parts.length });
      if (found.length < maxErrors) found.push(...attempt(phase, () => part(db, maxErrors, mode)));
    }
  } finally {
    if (db.inTransaction) db.exec("ROLLBACK");
  }
  const ok = found.length === 0;
  const messages = ok ? ["ok"] : found.slice(0, maxErrors);
  return { schemaVersion: 1, mode, maxErrors, ok, messages, elapsedMs: performance.now() - startedAt };
};

/** A page may be so damaged that a part cannot be looked into at all. */
function attempt(phase: string, find: () => string[]): string[] {
  try {
    return find();
  } catch (error) {
    if (storageErrorCode(error) !== "CORRUPT") throw error;
    return [`${phase}: ${(error as Error).message}`];
  }
}

/** What SQLite itself finds, in its words. */
export function findDamage(db: Database, limit: number, mode: IntegrityMode): string[] {
  return attempt("pages", () => {
    const rows = db.prepare(`PRAGMA ${mode === "full" ? "integrity_check" : "quick_check"}(${limit})`).all();
    // What is wrong with pages comes as one text of many lines, under a heading.
    const lines = rows.flatMap((row) => String(Object.values(row)[0]).split("\n"));
    return lines.filter((line) => line !== "ok" && !line.startsWith("*** in database "));
  });
}

function findWrongCounts(db: Database, limit: number): string[] {
  if (missingNames(db).includes("localqueue_counts")) return [];
  return db.prepare(WRONG_COUNTS).all({ limit }).map(describeCounts);
}

function describeReference({ table, rowid, parent, fkid }: Row): string {
  return `foreign key violation: table=${table}, rowid=${rowid}, parent=${parent}, fkid=${fkid}`;
}

function describeCounts(row: Row): string {
  const list = (prefix: string): string => STATES.map((state) => `${state}=${row[prefix + state]}`).join(" ");
  return `counts of queue ${JSON.stringify(row["queue"])}: kept ${list("kept_")}, counted ${list("")}; vacuum() makes them anew`;
}

/** To be called between the parts of a long task. What is thrown is for nobody: whoever waited has been told why. */
export function endIfCancelled(context: SideContext): void {
  if (context.cancelled()) throw new StorageError("IO", "This was ended early.");
}
