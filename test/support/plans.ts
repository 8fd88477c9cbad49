import type { Database } from "../../dist/storage/sqlite/driver.js";

/** How SQLite goes about a statement, whatever its parameters. */
export function explain(database: Database, sql: string): string[] {
  const names = [...sql.matchAll(/:([a-zA-Z]\w*)/g)].map(([, name]) => [name, 1]);
  const rows = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(Object.fromEntries(names));
  return rows.map(({ detail }) => String(detail));
}
