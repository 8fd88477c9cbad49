import { setTimeout as sleep } from "node:timers/promises";
import { StorageError } from "../../errors.ts";
import { type Database, storageErrorCode } from "./driver.ts";
import { endIfCancelled } from "./integrity.ts";
import { lockedOut } from "./refusals.ts";
import { recount } from "./schema.ts";
import type { SideContext, SideTask } from "./side-context.ts";

/** How long others are waited for, with the lock and, afterwards, while they still read. */
const LOCK_MS = 30_000;
const READERS_MS = 5000;
const SLICE_MS = 100;
const RETRY_MS = 2;

const LIVE_LEASES = `SELECT count(*) AS live, max(lease_until) AS until FROM messages INDEXED BY localqueue_leased
  WHERE status = 1 AND lease_until > :now`;

/**
 * Writes the whole file anew, without its free pages, and has the disk get them back. Nobody can write meanwhile, so
 * no lease could be renewed: it is refused while there is one.
 */
export const vacuum: SideTask<undefined, void> = async (_, context) => {
  // No connection of its own: its descriptor would outlive it, and `assertOneLibrary` would take it for somebody else's.
  const db = context.reader();
  try {
    db.exec("PRAGMA query_only = OFF");
    db.exec(`PRAGMA busy_timeout = ${SLICE_MS}`);
    await patiently(context, () => db.exec("BEGIN IMMEDIATE"));
    try {
      refuseIfLeased(db, context.file);
      recount(db);
      db.exec("COMMIT");
    } finally {
      if (db.inTransaction) db.exec("ROLLBACK");
    }
    // Older files cannot be shrunk in slices; from now on this one can.
    await patiently(context, () => db.exec("PRAGMA auto_vacuum = INCREMENTAL"));
    await patiently(context, () => {
      // A claim that waited for the lock may have come first.
      refuseIfLeased(db, context.file);
      db.exec("VACUUM");
    });
    shrinkFiles(db);
  } finally {
    context.close();
  }
};

function refuseIfLeased(db: Database, file: string): void {
  const now = Date.now();
  const { live, until } = db.prepare(LIVE_LEASES).get({ now }) ?? {};
  if (live === 0) return;
  throw new StorageError(
    "BUSY",
    `${file} cannot be vacuumed while jobs are being processed: there ${live === 1 ? "is 1 live lease" : `are ${live} live leases`}, ` +
      `the last until ${new Date(Number(until)).toISOString()}. Stop the workers of all its queues first; nothing was changed.`,
  );
}

async function patiently(context: SideContext, work: () => void): Promise<void> {
  const deadline = performance.now() + LOCK_MS;
  for (;;) {
    endIfCancelled(context);
    try {
      work();
      return;
    } catch (error) {
      if (storageErrorCode(error) !== "BUSY") throw error;
      if (performance.now() > deadline) throw lockedOut(context.file);
      // Some conflicts are reported without a wait.
      await sleep(RETRY_MS);
    }
  }
}

/** The new file is in the log so far. While somebody reads an older state, it stays there; then a later commit moves it. */
function shrinkFiles(db: Database): void {
  const deadline = performance.now() + READERS_MS;
  while (db.prepare("PRAGMA wal_checkpoint(TRUNCATE)").get()?.["busy"] === 1 && performance.now() < deadline);
}
