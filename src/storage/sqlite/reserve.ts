import { randomFillSync } from "node:crypto";
import fs from "node:fs";
import path from "node:path";

const MIB = 1024 * 1024;
/** What the first release of a whole reserve gives, and the last. */
const PIECE = MIB / 2;

const RESERVE_FILE = "localqueue.reserve";

/**
 * A file that does nothing but take up room, until the disk is full: then it is shortened, and what was in its way can
 * be written. It says of itself which of the two is the case, to every process and after every restart: a whole
 * reserve is some full MiB long, one that was drawn on is not. Where it cannot be made, there is none.
 */
export class Reserve {
  readonly #database: string;
  readonly #file: string;
  /** Its length as it was seen last; `undefined` = there is none. */
  #bytes: number | undefined;

  /** Stands beside that file. */
  constructor(database: string) {
    this.#database = database;
    this.#file = path.join(path.dirname(database), RESERVE_FILE);
    this.look();
  }

  get bytes(): number {
    return this.#bytes ?? 0;
  }

  /** Somebody needed it, and it has not been filled up since. */
  get isDrawnOn(): boolean {
    return this.#bytes !== undefined && (this.#bytes === 0 || this.#bytes % MIB !== 0);
  }

  /** There was one, and nothing of it is left. */
  get isSpent(): boolean {
    return this.#bytes === 0;
  }

  /** The unit in which the file system gives out room. */
  get blockBytes(): number {
    try {
      return fs.statfsSync(path.dirname(this.#database)).bsize;
    } catch {
      return Number.POSITIVE_INFINITY;
    }
  }

  look(): void {
    this.#bytes = undefined;
    try {
      const stat = fs.lstatSync(this.#file, { throwIfNoEntry: false });
      // Whatever else stands there, or belongs to somebody else, is not ours to shorten.
      if (!stat?.isFile() || stat.nlink !== 1) return;
      if (stat.size % MIB !== 0) fs.accessSync(this.#file, fs.constants.W_OK);
      this.#bytes = stat.size;
    } catch {
      // Then there is none.
    }
  }

  /** Bytes that this process may still write to the disk; infinite where the system does not tell. */
  free(): number {
    try {
      const { bavail, bfree, blocks, bsize } = fs.statfsSync(path.dirname(this.#database));
      // Root may use what is kept for it, but not what ext4 keeps for itself, which only `bavail` leaves out.
      const forRoot = process.geteuid?.() === 0 ? bfree - Math.min(blocks / 50, 4096) : 0;
      return Math.max(bavail, forRoot) * bsize;
    } catch {
      return Number.POSITIVE_INFINITY;
    }
  }

  /** Adds at most a MiB, up to the next full one; returns whether that succeeded. */
  grow(): boolean {
    this.look();
    const from = this.bytes;
    const more = MIB - (from % MIB);
    const { O_CREAT, O_EXCL, O_NOFOLLOW = 0, O_WRONLY } = fs.constants;
    const flags = this.#bytes === undefined ? O_CREAT | O_EXCL | O_WRONLY : O_WRONLY | O_NOFOLLOW;
    return this.#change(flags, (fd) => {
      // Whoever may write the database may need the reserve.
      if (from === 0) {
        const { mode, uid, gid } = fs.statSync(this.#database);
        if (process.geteuid?.() === 0) fs.fchownSync(fd, uid, gid);
        fs.fchmodSync(fd, mode & 0o666);
      }
      // Zeros would take no room on a file system that compresses.
      const noise = randomFillSync(Buffer.allocUnsafe(more));
      try {
        for (let done = 0; done < more; ) {
          // Somebody else may give a piece of it up meanwhile: a hole would only look like room.
          if (fs.fstatSync(fd).size !== from + done) throw new Error("changed");
          done += fs.writeSync(fd, noise, done, more - done, from + done);
        }
      } catch (error) {
        if (fs.fstatSync(fd).size > from) fs.ftruncateSync(fd, from);
        throw error;
      }
    });
  }

  /** Gives up so many bytes, rounded up, or all that is left; returns whether that was anything. */
  release(bytes = 1): boolean {
    this.look();
    if (this.bytes === 0) return false;
    const rest = Math.floor((this.bytes - bytes - PIECE) / MIB) * MIB + PIECE;
    const { O_NOFOLLOW = 0, O_WRONLY } = fs.constants;
    return this.#change(O_WRONLY | O_NOFOLLOW, (fd) => fs.ftruncateSync(fd, Math.max(rest, 0)));
  }

  #change(flags: number, change: (fd: number) => void): boolean {
    try {
      const fd = fs.openSync(this.#file, flags, 0o600);
      try {
        change(fd);
      } finally {
        fs.closeSync(fd);
      }
      return true;
    } catch {
      return false;
    } finally {
      this.look();
    }
  }
}
