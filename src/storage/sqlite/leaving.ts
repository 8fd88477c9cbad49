import { END, SIGNAL } from "./protocol.ts";

/**
 * A thread that is ended inside better-sqlite3 takes the process down with SIGABRT. So the end of the process is held up
 * for what has begun inside SQLite, and nothing more begins.
 */

/** How long the end of the process is held up for a statement that runs. */
const LEAVING_MS = 2000;

/** On the thread: whether SQLite may be entered; if so, to be left again. */
export function enterSqlite(signals: Int32Array): boolean {
  Atomics.store(signals, SIGNAL.working, 1);
  if (Atomics.load(signals, SIGNAL.end) !== END.exiting) return true;
  leaveSqlite(signals);
  return false;
}

export function leaveSqlite(signals: Int32Array): void {
  Atomics.store(signals, SIGNAL.working, 0);
  Atomics.notify(signals, SIGNAL.working);
}

/** On the thread: does what may enter SQLite, unless the process is about to exit. */
export function whileWorking<T>(signals: Int32Array, work: () => T): T | undefined {
  if (!enterSqlite(signals)) return undefined;
  try {
    return work();
  } finally {
    leaveSqlite(signals);
  }
}

/** On the client's side: blocks until the thread is outside SQLite, and sees to it that it will not enter it again. */
export function awaitOutside(signals: Int32Array): void {
  Atomics.store(signals, SIGNAL.end, END.exiting);
  Atomics.wait(signals, SIGNAL.working, 1, LEAVING_MS);
}
