import fs from "node:fs";
import path from "node:path";
import { StorageError } from "../../errors.ts";

/**
 * The directory and the files of a database. Nothing here opens the database, its -wal or its -shm: closing any
 * descriptor of theirs would drop this process's locks on them. `stat` is safe.
 */
export const DATABASE_FILE = "localqueue.db";

/**
 * Creates what is missing, readable by its owner only, and refuses what cannot hold a database. `doubt` is what the
 * program should be warned of.
 */
export function prepareFiles(directory: string): { readonly file: string; readonly doubt: string | undefined } {
  try {
    fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw locationError(directory, cause);
  }
  const problem = judgeFilesystem(fs.statfsSync(directory).type, process.platform);
  if (problem?.refused) {
    throw new StorageError(
      "UNSUPPORTED_FILESYSTEM",
      `${directory} is on ${problem.name}, where SQLite's locks cannot be trusted. Use a directory on a local disk.`,
    );
  }
  const doubt = problem && doubtAbout(directory, problem.name);
  const file = path.join(directory, DATABASE_FILE);
  try {
    createPrivately(file);
    fs.accessSync(directory, fs.constants.W_OK | fs.constants.X_OK);
  } catch (cause) {
    throw locationError(file, cause);
  }
  // Somebody with other privileges may have left a -wal or -shm that only they can use.
  for (const name of [file, `${file}-wal`, `${file}-shm`]) {
    try {
      fs.accessSync(name, fs.constants.R_OK | fs.constants.W_OK);
    } catch (cause) {
      const isAbsent = (cause as NodeJS.ErrnoException).code === "ENOENT";
      if (name === file || !isAbsent) throw locationError(name, cause);
    }
  }
  if (!fs.statSync(file).isFile()) {
    throw new StorageError("BAD_LOCATION", `${file} is not a file. Choose another directory.`);
  }
  return { file, doubt };
}

export function doubtAbout(directory: string, filesystem: string): string {
  return `${directory} is on ${filesystem}. Use it from one machine only, or a local disk where possible.`;
}

/**
 * An empty file of mode 0600 appears under its name only after its descriptor was closed: another thread of this
 * process may hold locks on that name at any moment. SQLite gives -wal and -shm the same mode.
 */
function createPrivately(file: string): void {
  if (fs.existsSync(file)) return;
  const draft = `${file}.${process.pid}.${process.hrtime.bigint()}`;
  fs.closeSync(fs.openSync(draft, "wx", 0o600));
  try {
    fs.linkSync(draft, file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EPERM" || code === "ENOTSUP" || code === "ENOSYS") {
      if (!fs.existsSync(file)) fs.renameSync(draft, file);
    } else if (code !== "EEXIST") throw error;
  } finally {
    fs.rmSync(draft, { force: true });
  }
}

/** Why a directory or file cannot be used, as an error. */
export function locationError(where: string, cause: unknown): StorageError {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === "EACCES" || code === "EPERM" || code === "EROFS") {
    return new StorageError(
      "READ_ONLY",
      `${where} cannot be written by this user (${code}). Check its owner and permissions, or choose another directory.`,
      { cause },
    );
  }
  if (code === "ENOSPC" || code === "EDQUOT") {
    return new StorageError("DISK_FULL", `There is no space left for ${where}.`, { cause });
  }
  if (code === "EIO" || code === "EMFILE" || code === "ENFILE") {
    return new StorageError("IO", `${where} could not be opened (${code}).`, { cause });
  }
  const hint =
    code === "EEXIST" || code === "ENOTDIR" ? "A file stands where a directory is needed" : "It cannot be created";
  return new StorageError("BAD_LOCATION", `${where} is no usable directory. ${hint} (${code ?? "unknown reason"}).`, {
    cause,
  });
}

/** Magic numbers of statfs(2) on Linux. */
const NETWORK = new Map([
  [0x6969, "NFS"],
  [0x517b, "SMB"],
  [0xff534d42, "CIFS"],
  [0xfe534d42, "SMB"],
  [0x01021997, "a 9p mount"],
  [0x5346414f, "AFS"],
  [0x73757245, "Coda"],
  [0x00c36400, "Ceph"],
]);
const UNCERTAIN = new Map([
  [0x65735546, "a FUSE file system"],
  [0x6a656a63, "virtiofs"],
]);

/** Whether a file system can be trusted with locks and shared memory; `undefined` = as far as we know. */
export function judgeFilesystem(
  type: number,
  platform: NodeJS.Platform,
): { readonly refused: boolean; readonly name: string } | undefined {
  if (platform !== "linux") return undefined;
  const magic = type >>> 0;
  const network = NETWORK.get(magic);
  if (network !== undefined) return { refused: true, name: network };
  const uncertain = UNCERTAIN.get(magic);
  return uncertain === undefined ? undefined : { refused: false, name: uncertain };
}

/** Notices when the files at the path are no longer those that are open. */
export class FileIdentity {
  readonly #file: string;
  readonly #walFile: string;
  #database: fs.Stats | undefined;
  #wal: fs.Stats | undefined;

  constructor(file: string) {
    this.#file = file;
    this.#walFile = `${file}-wal`;
  }

  /** Throws FILE_REPLACED if the database or its WAL was moved, deleted or replaced; returns the WAL's size in bytes. */
  check(): number {
    const database = fs.statSync(this.#file, { throwIfNoEntry: false });
    const wal = fs.statSync(this.#walFile, { throwIfNoEntry: false });
    this.#database ??= database;
    this.#wal ??= wal;
    if (!isSame(database, this.#database) || !isSame(wal, this.#wal)) {
      throw new StorageError(
        "FILE_REPLACED",
        `${this.#file} (or its -wal) was moved, deleted or replaced while it was open. Stop all writers and check the directory.`,
        { outcome: "unknown" },
      );
    }
    return wal?.size ?? 0;
  }

  /** To be called when the connection is closed: whoever closes last deletes the WAL, and the next one makes its own. */
  forgetWal(): void {
    this.#wal = undefined;
  }
}

function isSame(one: fs.Stats | undefined, other: fs.Stats | undefined): boolean {
  return one?.ino === other?.ino && one?.dev === other?.dev;
}

/**
 * Refuses a database that a *different* SQLite library of this process has open: two libraries know nothing of each
 * other's locks, and a commit would be lost. Only Linux can tell. Each connection of ours holds a descriptor of the
 * directory beside SQLite's of the file, so a surplus of the latter belongs to somebody else.
 */
export function assertOneLibrary(file: string, driver: "node:sqlite" | "better-sqlite3"): void {
  if (process.platform !== "linux") return;
  const maps = fs.readFileSync("/proc/self/maps", "utf8");
  const libraries = new Set(maps.match(/\/\S*(?:sqlite\S*\.node|libsqlite3\S*)$/gm) ?? []);
  if (libraries.size + (driver === "node:sqlite" ? 1 : 0) < 2) return;
  if (descriptorsOf(file).length > descriptorsOf(path.dirname(file)).length) {
    throw new StorageError(
      "BAD_LOCATION",
      `${file} is already open in this process through another SQLite library, and the two do not see each other's ` +
        "locks. Close the other connection, or use it from another process.",
    );
  }
}

/** Those of this process by which it has the file open. */
export function descriptorsOf(target: string): string[] {
  const wanted = fs.statSync(target);
  return fs.readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return isSame(fs.statSync(`/proc/self/fd/${fd}`, { throwIfNoEntry: false }), wanted);
    } catch {
      return false; // closed meanwhile, or not ours to see
    }
  });
}
