import { StorageError, type StorageErrorCode } from "./errors.ts";
import { sleep } from "./timers.ts";

/** Faults that pass, or that somebody will mend. */
const passing: ReadonlySet<StorageErrorCode> = new Set(["BUSY", "IO", "DISK_FULL", "READ_ONLY", "CONNECTION"]);

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 60_000;
/** Somebody is clearing a full disk, as likely as not; an attempt costs little. */
const LONGEST_FULL_PAUSE_MS = 5_000;

export function mayPass(error: unknown): error is StorageError {
  return error instanceof StorageError && passing.has(error.code);
}

/** Waits faults of a storage out: in one pause for all who meet them, longer each time in a row, up to a minute. */
export class Patience {
  readonly #report: (error: StorageError) => void;
  #pause: Promise<void> | undefined;
  #pausesInRow = 0;

  constructor(report: (error: StorageError) => void) {
    this.#report = report;
  }

  /** Of the faults that are met during one pause only the first is reported. `signal` ends the pause. */
  waitOut(error: StorageError, signal: AbortSignal): Promise<void> {
    this.#pause ??= this.#waitOut(error, signal);
    return this.#pause;
  }

  /** The storage works. */
  reset(): void {
    this.#pausesInRow = 0;
  }

  async #waitOut(error: StorageError, signal: AbortSignal): Promise<void> {
    this.#report(error);
    const longest = error.code === "DISK_FULL" ? LONGEST_FULL_PAUSE_MS : LONGEST_PAUSE_MS;
    const whole = Math.min(FIRST_PAUSE_MS * 2 ** this.#pausesInRow++, longest);
    await sleep(whole * (0.5 + Math.random() / 2), signal);
    this.#pause = undefined;
  }
}
