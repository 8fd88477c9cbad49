import type { SideTask } from "./side-context.ts";

/**
 * Moves the WAL into the database while the engine goes on writing to it: most of the time that this takes is the
 * disk's. What was written meanwhile is for the engine to move, since the WAL begins anew only when nothing is left.
 */
export const moveLog: SideTask<undefined, void> = (_, context) => {
  context.reader().prepare("PRAGMA wal_checkpoint(PASSIVE)").all();
};
