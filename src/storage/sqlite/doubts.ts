import fs from "node:fs";
import { type Driver, isSafeSqlite } from "./driver.ts";
import { doubtAbout, judgeFilesystem } from "./files.ts";

/** What a program should know about where its database is, and what it is written with. */

export function unsafeSqlite({ name, sqliteVersion }: Driver): string | undefined {
  if (isSafeSqlite(sqliteVersion)) return undefined;
  return (
    `${name} carries SQLite ${sqliteVersion}, which can corrupt a database that several processes write. ` +
    "Upgrade to Node 22.22.3, 24.15 or newer, or install better-sqlite3@~12.11."
  );
}

export function doubtfulFilesystem(directory: string): string | undefined {
  const problem = judgeFilesystem(fs.statfsSync(directory).type, process.platform);
  return problem && doubtAbout(directory, problem.name);
}

/** Beyond this, SQLite would truncate the WAL when it starts it anew. */
const LONG_WAL_BYTES = 64 * 1024 * 1024;

export function longWal(bytes: number | null): string | undefined {
  if (bytes === null || bytes <= LONG_WAL_BYTES) return undefined;
  const mib = Math.ceil(bytes / 1024 / 1024);
  return (
    `The write-ahead log has grown to ${mib} MiB, because some connection has been reading for a long time (or one ` +
    "transaction wrote very much). Look for a program that keeps a transaction open on the file; once it ends, the " +
    "log shrinks by itself."
  );
}
