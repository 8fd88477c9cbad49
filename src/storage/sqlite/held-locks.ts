import fs from "node:fs";
import { descriptorsOf } from "./files.ts";

/** SQLite keeps this byte of the -shm locked for as long as it uses it; those before it are locked now and then. */
const LAST_LOCKED_BYTE = " 128\n";
/** What the system tells of a descriptor, with the most locks that one can have. */
const TOLD_BYTES = 1024;
/** A look takes some microseconds, a tenth of a short transaction. */
const LOOK_MS = 10;
/** They do not come back as long as another thread of this process has the file open, and opening it anew takes time. */
const LOST_MS = 1000;

/**
 * Whether SQLite still has its locks on the shared memory. When a program closes a file, the system takes all locks of
 * its process on that file away, whoever has them; SQLite does not notice, and another process that opens the file takes
 * itself for the first one there. Only Linux tells which locks a process has; elsewhere this sees nothing.
 */
export class HeldLocks {
  readonly #file: string;
  readonly #text: Buffer = Buffer.allocUnsafe(TOLD_BYTES);
  /** From which it can be read what the system knows of the descriptor of SQLite that has the locks. */
  #told: number | undefined;
  #wereSeen = false;
  #nextLookAt = 0;

  constructor(database: string) {
    this.#file = `${database}-shm`;
  }

  /** To be called when the connection has just been opened. */
  watch(): void {
    this.forget();
    if (process.platform !== "linux") return;
    try {
      for (const descriptor of descriptorsOf(this.#file)) {
        const told = fs.openSync(`/proc/self/fdinfo/${descriptor}`, "r");
        if (this.#told === undefined && this.#tellsOfLock(told)) this.#told = told;
        else fs.closeSync(told);
      }
    } catch (error) {
      // Then nobody can tell.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") this.#wereSeen = false;
    }
    if (this.#told === undefined) return;
    this.#wereSeen = true;
    this.#nextLookAt = 0;
  }

  /** Whether they were seen once, and are not there now; looks now and then. */
  areLost(): boolean {
    const now = performance.now();
    if (!this.#wereSeen || now < this.#nextLookAt) return false;
    this.#nextLookAt = now + LOOK_MS;
    if (this.#told !== undefined && this.#tellsOfLock(this.#told)) return false;
    // SQLite may have them by another descriptor of its own meanwhile.
    this.watch();
    if (this.#told !== undefined || !this.#wereSeen) return false;
    this.#nextLookAt = now + LOST_MS;
    return true;
  }

  /** To be called when the connection is closed. */
  forget(): void {
    if (this.#told !== undefined) fs.closeSync(this.#told);
    this.#told = undefined;
  }

  #tellsOfLock(told: number): boolean {
    try {
      const bytes = fs.readSync(told, this.#text, 0, TOLD_BYTES, 0);
      return this.#text.subarray(0, bytes).includes(LAST_LOCKED_BYTE);
    } catch {
      return false; // it is closed
    }
  }
}
