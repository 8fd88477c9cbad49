import fs from "node:fs";
import path from "node:path";
import { StorageError } from "../../errors.ts";
import type { BackupReport } from "../care.ts";
import { type Driver, toStorageError } from "./driver.ts";
import { DATABASE_FILE, locationError } from "./files.ts";
import { endIfCancelled, findDamage } from "./integrity.ts";
import type { SideContext, SideTask } from "./side-context.ts";

const DRAFT = `.${DATABASE_FILE}.incomplete`;
const PROGRESS_EVERY_MS = 50;
const MAX_MESSAGES = 100;

export interface BackupInput {
  /** As the caller spelled it, and as an absolute path. */
  readonly destination: string;
  readonly directory: string;
}

/**
 * Copies the file as it is at one moment, while others write, into a directory that this makes; checks the copy, and
 * gives it its name once it is on the disk. If anything fails, what was made is removed.
 */
export const backup: SideTask<BackupInput, BackupReport> = async ({ destination, directory }, context) => {
  const startedAt = performance.now();
  const target = reserve(directory, context.directory);
  const draft = path.join(target, DRAFT);
  const file = path.join(target, DATABASE_FILE);
  try {
    fs.closeSync(fs.openSync(draft, "wx", 0o600));
    const pagesCopied = await copy(draft, context);
    context.progress({ phase: "verifying", done: 0, total: pagesCopied });
    const pageCount = verify(draft, context.driver);
    endIfCancelled(context);
    context.progress({ phase: "verifying", done: pagesCopied, total: pagesCopied });
    flush(draft);
    fs.renameSync(draft, file);
    for (const each of [target, path.dirname(target)]) flushDirectory(each);
    return {
      schemaVersion: 1,
      destination,
      databasePath: path.join(destination, DATABASE_FILE),
      elapsedMs: performance.now() - startedAt,
      pagesCopied,
      pageCount,
      databaseSizeBytes: fs.statSync(file).size,
      verified: true,
      verificationMode: "full",
      verificationMessages: ["ok"],
    };
  } catch (error) {
    discard(target);
    throw isOfFiles(error) ? locationError(target, error) : toStorageError(error, target);
  }
};

/** Makes the directory, which nobody else may have made; changes nothing if it cannot be used. */
function reserve(directory: string, source: string): string {
  const refuse = (why: string, cause?: unknown): StorageError =>
    new StorageError("BAD_LOCATION", `${directory} cannot take a backup: ${why} Nothing was changed.`, { cause });
  const parent = path.dirname(directory);
  let target: string;
  try {
    target = path.join(fs.realpathSync(parent), path.basename(directory));
    if (!fs.statSync(parent).isDirectory()) throw refuse(`${parent} is not a directory.`);
  } catch (error) {
    if (error instanceof StorageError) throw error;
    throw refuse(`the directory ${parent} must exist (${(error as NodeJS.ErrnoException).code}).`, error);
  }
  if (isWithin(target, fs.realpathSync(source))) throw refuse("it is the queue's own directory, or inside it.");
  try {
    fs.mkdirSync(target, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw locationError(directory, error);
    const unfinished = fs.existsSync(path.join(target, DRAFT));
    throw refuse(
      unfinished
        ? "an earlier backup into it was not finished. Unless that is still under way, delete the directory."
        : "it exists already. A backup makes a directory of its own; choose another name.",
      error,
    );
  }
  return target;
}

/** Removes what was made, and nothing that somebody else may have put there. */
function discard(target: string): void {
  try {
    const names = [DATABASE_FILE, DRAFT, ...["-journal", "-wal", "-shm"].map((end) => DRAFT + end)];
    for (const name of names) fs.rmSync(path.join(target, name), { force: true });
    fs.rmdirSync(target);
  } catch {
    // Why the backup failed is what matters.
  }
}

/** By inode, where a directory exists: some file systems know a name in several spellings. */
function isWithin(target: string, source: string): boolean {
  const { dev, ino } = fs.statSync(source);
  for (let each = target; ; each = path.dirname(each)) {
    const stats = fs.statSync(each, { throwIfNoEntry: false });
    if (stats?.dev === dev && stats.ino === ino) return true;
    if (each === path.dirname(each)) return false;
  }
}

/** One transaction that reads sees one moment, and nothing that is written meanwhile makes the copying start over. */
async function copy(draft: string, context: SideContext): Promise<number> {
  const db = context.reader();
  let [total, toldAt] = [0, 0];
  const progress = (done: number, pages: number): void => {
    endIfCancelled(context);
    total = pages;
    const now = performance.now();
    if (now - toldAt < PROGRESS_EVERY_MS) return;
    toldAt = now;
    context.progress({ phase: "copying", done, total });
  };
  db.exec("BEGIN");
  try {
    total = Number(db.prepare("PRAGMA page_count").get()?.["page_count"]);
    await db.copyTo(draft, progress);
  } finally {
    if (db.inTransaction) db.exec("ROLLBACK");
  }
  context.progress({ phase: "copying", done: total, total });
  return total;
}

/** Returns how many pages the copy has. It must be usable where nobody can write, so it does not stay in WAL mode. */
function verify(draft: string, driver: Driver): number {
  const db = driver.open(draft);
  try {
    db.exec("PRAGMA journal_mode = DELETE");
    db.exec("PRAGMA trusted_schema = OFF");
    db.exec("PRAGMA cell_size_check = ON");
    const [damage] = findDamage(db, MAX_MESSAGES, "full");
    if (damage !== undefined) {
      throw new StorageError(
        "CORRUPT",
        `The backup was given up: its integrity check found "${damage}". Check the queue's own file with \`checkIntegrity\`.`,
      );
    }
    return Number(db.prepare("PRAGMA page_count").get()?.["page_count"]);
  } finally {
    db.close();
  }
}

/** Safe here alone: no connection has the copy open, so no locks can be lost. */
function flush(file: string): void {
  const descriptor = fs.openSync(file, "r+");
  try {
    fs.fsyncSync(descriptor);
  } finally {
    fs.closeSync(descriptor);
  }
}

/** So that the names are on the disk, too; Windows has no such thing. */
function flushDirectory(directory: string): void {
  if (process.platform === "win32") return;
  const descriptor = fs.openSync(directory, "r");
  try {
    fs.fsyncSync(descriptor);
  } finally {
    fs.closeSync(descriptor);
  }
}

function isOfFiles(error: unknown): boolean {
  return typeof (error as NodeJS.ErrnoException | null)?.syscall === "string";
}
