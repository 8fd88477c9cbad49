import { StorageError } from "../../errors.ts";
import { storageErrorCode } from "./driver.ts";
import type { Reserve } from "./reserve.ts";

const MIB = 1024 * 1024;
/** A disk with less is full. Puts go on when there is so much, or so much inside the file while that lasts. */
const ROOM_BYTES = 4 * MIB;
/** A put of more needs room twice, in the log and in the database, and is not tried if there is none. */
const LARGE_BYTES = 4 * MIB;
/** Somebody fills the reserve up at the moment, if a disk with so much left has one that was drawn on. */
const SCANT_BYTES = 2 * MIB;
/** What a checkpoint is to leave. */
const MARGIN_BYTES = 256 * 1024;
/** In ordinary use the log does not grow beyond 21 MiB. */
const LARGEST_RESERVE = 22 * MIB;
/** The reserve takes no more of what is free. */
const SHARE = 0.1;
const PAGE_BYTES = 4096;
const LEAST_LOG_PAGES = 128;
/** What the last batch may add to a log that was short enough before it. */
const BATCH_BYTES = 2 * MIB;

/** On a full disk, so that the log can start over before the next. */
const CALLERS_IN_SHORTAGE = 4;

const LOOK_MS = 20;
/** Puts of less go on while nobody has looked: a look takes as long as a small one. */
const SMALL_BYTES = 64 * 1024;
const GROW_RETRY_MS = 1000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;
/** A disk that is full again this soon after it seemed not to be is asked less often. */
const RELAPSE_MS = 10_000;

/** What may be told that there is no room for it. */
interface Refusable {
  /** `short`: on a full disk. `spent`: when the reserve is used up as well. Otherwise never. */
  readonly refusedWhen?: "short" | "spent" | undefined;
  /** What it brings along. */
  readonly bytes?: number;
  fail(error: StorageError): void;
}

export interface SpaceOptions {
  /** The database. */
  readonly file: string;
  readonly reserve: Reserve;
  /** Bytes inside the file that nothing uses. */
  readonly freeInFile: () => number;
}

/**
 * What happens on a full disk: the reserve is drawn on, a piece at a time, so that jobs can be settled, renewed and
 * claimed; puts are refused without an attempt until there is room. The reserve is as large as the log, because moving
 * the log into the database may make that grow by as much; then the log's own room serves again and again.
 */
export class Space {
  readonly #options: SpaceOptions;
  readonly #reserve: Reserve;
  /** The disk is full, as far as we know. */
  short = false;
  /** What is left is for what holds a job. */
  #spent = false;
  /** Something found no room, and there was no checkpoint since. */
  #alarm = false;
  /** Nor is there room inside the file. */
  #packed = false;
  #lookAt = 0;
  /** A small batch went on without a look. */
  #looksLater = false;
  #growAt = 0;
  #checkAt = 0;
  #now = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #leftAt = Number.NEGATIVE_INFINITY;

  constructor(options: SpaceOptions) {
    this.#options = options;
    this.#reserve = options.reserve;
  }

  /** How many callers one transaction may serve. */
  get callers(): number {
    return this.short ? CALLERS_IN_SHORTAGE : Number.POSITIVE_INFINITY;
  }

  /** Those of a batch for which there may be room; the others are told at once that there is none. */
  admit<S extends Refusable>(steps: readonly S[], now: number): readonly S[] {
    this.#now = now;
    if (this.short) this.#tryToLeave(now);
    else if (now >= this.#lookAt && steps.some(({ refusedWhen }) => refusedWhen === "short")) {
      this.#looksLater = steps.reduce((sum, { bytes = 0 }) => sum + bytes, 0) < SMALL_BYTES;
      if (!this.#looksLater) this.#look(now);
    }
    const large = steps.filter(({ bytes = 0 }) => bytes > LARGE_BYTES);
    if (large.length === 0) return this.refuse(steps);
    const free = this.#reserve.free();
    return this.refuse(this.#without(steps, ({ bytes = 0 }) => bytes > LARGE_BYTES && 2 * bytes + ROOM_BYTES > free));
  }

  refuse<S extends Refusable>(steps: readonly S[], cause?: unknown): readonly S[] {
    if (!this.short) return steps;
    return this.#without(steps, this.#refusing(), cause);
  }

  #without<S extends Refusable>(steps: readonly S[], refused: (step: S) => boolean, cause?: unknown): readonly S[] {
    const text = "The disk is full. Free some space: puts go on by themselves as soon as there is enough.";
    return steps.filter((step) => {
      if (!refused(step)) return true;
      step.fail(new StorageError("DISK_FULL", `${text} (${this.#options.file})`, { cause }));
      return false;
    });
  }

  /**
   * Draws on the reserve if this error means that the disk is full. Returns whether another attempt is worth while,
   * without those steps that are `refuse`d now. Where the disk has room for others, a put that found none asked for
   * much, which is its own misfortune; but a batch without puts is never too large, whatever the disk says of itself.
   */
  relieves(error: unknown, steps?: readonly Refusable[]): boolean {
    if (storageErrorCode(error) !== "DISK_FULL") return false;
    const modest = steps?.every(({ refusedWhen }) => refusedWhen !== "short");
    if (!this.short && !modest && this.#reserve.free() >= ROOM_BYTES) return false;
    this.#enter();
    this.#alarm = true;
    this.#packed = true;
    const released = this.#reserve.release();
    this.#spent = this.#reserve.isSpent;
    return released || (steps ?? []).some(this.#refusing());
  }

  /**
   * Makes room for the -shm of a connection that is about to be opened. Not every file system says in time that there is
   * none: with blocks of less than 4 KiB, the process would be killed by SIGBUS. There, throws DISK_FULL.
   */
  prepareToOpen(): void {
    if (this.#reserve.free() >= MARGIN_BYTES) return;
    if (this.#reserve.release()) {
      this.#enter();
      this.#alarm = true;
    } else if (this.#reserve.blockBytes < PAGE_BYTES) {
      throw new StorageError("DISK_FULL", `There is no space left to open ${this.#options.file}.`);
    }
  }

  #refusing(): (step: Refusable) => boolean {
    const packed = this.#packed || this.#options.freeInFile() < ROOM_BYTES;
    return ({ refusedWhen }) => (refusedWhen === "short" && packed) || (refusedWhen === "spent" && this.#spent);
  }

  #enter(): void {
    if (this.short) return;
    this.short = true;
    const relapsed = this.#now - this.#leftAt < RELAPSE_MS;
    this.#pauseMs = relapsed ? Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS) : FIRST_PAUSE_MS;
    this.#checkAt = this.#now + this.#pauseMs;
  }

  /** To be called when callers have their answers. */
  tend(now: number): void {
    if (this.#looksLater && !this.short) this.#look(now);
    this.#looksLater = false;
  }

  /** Another process may have drawn on the reserve. */
  #look(now: number): void {
    this.#lookAt = now + LOOK_MS;
    this.#reserve.look();
    if (this.#reserve.isDrawnOn && this.#reserve.free() < SCANT_BYTES) this.#enter();
  }

  #tryToLeave(now: number): void {
    if (now < this.#checkAt) return;
    this.#checkAt = now + this.#pauseMs;
    this.#packed = false;
    this.#reserve.look();
    const filled = this.#reserve.bytes > 0 && !this.#reserve.isDrawnOn;
    if (!filled && !(this.#reserve.free() >= ROOM_BYTES && (!this.#reserve.isDrawnOn || this.#reserve.grow()))) return;
    this.short = false;
    this.#spent = false;
    this.#leftAt = now;
  }

  /** Lets the reserve grow with the log, if the disk has plenty of room. */
  keepUp(logBytes: number, now: number): void {
    if (logBytes === 0 || this.short || now < this.#growAt) return;
    while (this.#reserve.bytes < wantedFor(logBytes)) {
      if (this.#reserve.bytes + MIB <= this.#reserve.free() * SHARE && this.#reserve.grow()) continue;
      this.#growAt = now + GROW_RETRY_MS;
      return;
    }
  }

  /** How long the log may get before it is moved into the database: shorter where the reserve could not keep up. */
  logPages(most: number, logBytes: number): number {
    const { bytes } = this.#reserve;
    if (bytes === 0 || bytes >= wantedFor(logBytes)) return most;
    return Math.min(most, Math.max(LEAST_LOG_PAGES, Math.floor((bytes - BATCH_BYTES) / PAGE_BYTES)));
  }

  /** Whether something found no room since the last call. */
  takeAlarm(): boolean {
    const alarm = this.#alarm;
    this.#alarm = false;
    return alarm;
  }

  /** Makes room for a database that is about to grow by so much, or spends nothing on it; returns whether there is. */
  provides(bytes: number): boolean {
    const free = this.#reserve.free();
    const missing = bytes + MARGIN_BYTES - free;
    if (bytes <= 0 || missing <= 0) return true;
    return bytes <= free + this.#reserve.bytes && this.#reserve.release(missing);
  }

  /** The log has room. */
  eased(): void {
    this.#spent = false;
  }
}

/** The database may grow by as much as the log holds; what is on top is for the log. */
function wantedFor(logBytes: number): number {
  return Math.min(LARGEST_RESERVE, (Math.ceil(logBytes / MIB) + 1) * MIB);
}
