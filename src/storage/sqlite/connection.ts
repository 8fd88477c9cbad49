import fs from "node:fs";
import path from "node:path";
import { StorageError } from "../../errors.ts";
import { type Database, type Driver, isConnectionFailure, storageErrorCode, toStorageError } from "./driver.ts";
import { assertOneLibrary, FileIdentity, prepareFiles } from "./files.ts";
import { HeldLocks } from "./held-locks.ts";
import { LONG_LOG_BYTES, Log, type LogState } from "./log.ts";
import { Reserve } from "./reserve.ts";
import { assertCompatible, completeSchema, countsAreTriggered, isComplete, migrate } from "./schema.ts";
import { Space } from "./space.ts";
import { prepareStatements, type Statements } from "./statements.ts";

/** The longest that one attempt waits inside SQLite for a lock; between attempts the engine looks after its callers. */
export const BUSY_SLICE_MS = 50;

const OPEN_DEADLINE_MS = 30_000;
const PAGE_BYTES = 4096;

export interface ConnectionOptions {
  readonly directory: string;
  readonly driver: Driver;
  /** Ends a wait for a lock while opening. */
  readonly cancelled?: () => boolean;
  /** Hears that the program took SQLite's locks away, and that the file was opened anew. */
  readonly locksLost?: () => void;
}

/** One SQLite connection: opening and configuring it, its transactions, its WAL. */
export class Connection {
  readonly file: string;
  /** What the program should be warned of about the place of the file. */
  readonly doubt: string | undefined;
  readonly space: Space;
  readonly log: Log;
  readonly #options: ConnectionOptions;
  readonly #identity: FileIdentity;
  readonly #locks: HeldLocks;
  /** Tells `assertOneLibrary` that one of the descriptors of the file is ours. */
  #mark: number | undefined;
  #db: Database | undefined;
  #statements: Statements | undefined;
  #busyMs = BUSY_SLICE_MS;
  #fsync: boolean | undefined;
  #schemaVersion = -1;
  /** Changes only when somebody else commits; it belongs to this connection. */
  #dataVersion = -1;
  #foreignCommit = false;
  /** Only somebody else's commit can have changed the layout. */
  #layoutInDoubt = true;
  /** Whether triggers keep the counts (a Python client writes the file too), or each transaction does. */
  countsAreTriggered = false;
  #notedChanges = 0;
  /** How long the last transaction held the lock, and how much of that its COMMIT took. */
  heldMs = 0;
  commitMs = 0;
  #begunAt = 0;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    const { file, doubt } = prepareFiles(options.directory);
    this.file = file;
    this.doubt = doubt;
    this.#identity = new FileIdentity(this.file);
    this.#locks = new HeldLocks(this.file);
    assertOneLibrary(this.file, options.driver.name);
    this.space = new Space({ file, reserve: new Reserve(file), freeInFile: () => this.#freeInFile() });
    this.log = new Log({
      space: this.space,
      checkpoint: (mode) => this.#checkpoint(mode),
      bytes: () => this.#identity.check(),
      growth: () => this.pages().total * PAGE_BYTES - fs.statSync(file).size,
    });
    this.#open();
  }

  get statements(): Statements {
    if (this.#statements === undefined) this.#open();
    return this.#statements as Statements;
  }

  get inTransaction(): boolean {
    return this.#db?.inTransaction ?? false;
  }

  #open(): void {
    this.space.prepareToOpen();
    try {
      this.#mark = fs.openSync(path.dirname(this.file), "r");
      const db = this.#options.driver.open(this.file);
      this.#db = db;
      db.exec(`PRAGMA busy_timeout = ${BUSY_SLICE_MS}`);
      this.#patiently(() => assertCompatible(db, this.file));
      this.#patiently(() => allowShrinking(db));
      this.#patiently(() => switchToWal(db));
      // As soon as there is shared memory, and at the latest when there must be.
      this.#locks.watch();
      db.exec("PRAGMA synchronous = NORMAL");
      // On macOS, a flush that also empties the drive's own cache; elsewhere every flush does, and this does nothing.
      db.exec("PRAGMA fullfsync = ON");
      db.exec("PRAGMA foreign_keys = ON");
      // Where what a step overwrites is kept until it is done: from 64 KiB on it would go through a file.
      db.exec("PRAGMA temp_store = MEMORY");
      db.exec("PRAGMA trusted_schema = OFF");
      db.exec("PRAGMA cell_size_check = ON");
      db.exec("PRAGMA wal_autocheckpoint = 0");
      db.exec(`PRAGMA journal_size_limit = ${LONG_LOG_BYTES}`);
      assertSetting(db, "synchronous", 1);
      assertSetting(db, "foreign_keys", 1);
      this.#busyMs = BUSY_SLICE_MS;
      this.#fsync = false;
      this.#patiently(() => migrate(db, (work) => inTransaction(db, work)));
      this.#locks.watch();
      this.#statements = prepareStatements(db);
      this.noteChanges();
      // Read before looking: a change that comes in between is noticed by the next transaction.
      const version = this.#readSchemaVersion();
      this.#schemaVersion = isComplete(db) ? version : -1;
      this.countsAreTriggered = countsAreTriggered(db);
    } catch (error) {
      this.close();
      if (this.space.relieves(error)) this.#open();
      else throw toStorageError(error, this.file);
    }
  }

  #freeInFile(): number {
    try {
      return Number(this.#statements?.freePages.get()?.["freelist_count"] ?? 0) * PAGE_BYTES;
    } catch {
      return 0;
    }
  }

  /** Several processes may open a new file at once, and a crashed one may leave a WAL that somebody is recovering. */
  #patiently(work: () => void): void {
    const deadline = Date.now() + OPEN_DEADLINE_MS;
    for (;;) {
      try {
        work();
        return;
      } catch (error) {
        if (error instanceof StorageError || storageErrorCode(error) !== "BUSY") throw error;
        if (Date.now() > deadline || this.#options.cancelled?.()) throw error;
        pause(5 + Math.random() * 20);
      }
    }
  }

  /** Begins a write transaction; `false` when somebody else holds the lock for all of `busyMs`. */
  begin(fsync: boolean, busyMs: number): boolean {
    if (this.#statements === undefined) this.#open();
    else if (this.#locks.areLost()) this.#lockAgain();
    const db = this.#db as Database;
    if (busyMs !== this.#busyMs) db.exec(`PRAGMA busy_timeout = ${busyMs}`);
    this.#busyMs = busyMs;
    // Inside a transaction it would be an error.
    if (fsync !== this.#fsync) db.exec(`PRAGMA synchronous = ${fsync ? "FULL" : "NORMAL"}`);
    this.#fsync = fsync;
    try {
      db.exec("BEGIN IMMEDIATE");
    } catch (error) {
      if (storageErrorCode(error) === "BUSY") return false;
      throw error;
    }
    this.#begunAt = performance.now();
    this.#lookForForeignCommit();
    if (this.#layoutInDoubt && this.layoutChanged()) {
      completeSchema(db);
      this.countsAreTriggered = countsAreTriggered(db);
      // As long as this is not committed it may come to nothing.
      this.#schemaVersion = -1;
    } else this.#layoutInDoubt = false;
    return true;
  }

  /** Commits; nothing may be acknowledged before this returns. */
  commit(): void {
    const startedAt = performance.now();
    const completed = this.#layoutInDoubt ? this.#readSchemaVersion() : undefined;
    this.#db?.exec("COMMIT");
    if (completed !== undefined) {
      this.#schemaVersion = completed;
      this.#layoutInDoubt = false;
    }
    const endedAt = performance.now();
    this.commitMs = endedAt - startedAt;
    this.heldMs = endedAt - this.#begunAt;
    this.log.committed(this.#identity.check());
  }

  /** SQLite takes its locks when it opens the file. */
  #lockAgain(): void {
    this.close();
    this.#open();
    this.#options.locksLost?.();
  }

  /** Ends the transaction if it still stands. */
  rollback(): void {
    if (this.#db?.inTransaction) this.#db.exec("ROLLBACK");
  }

  /** Runs `work` so that it leaves no trace if it throws. */
  atomically(work: () => void): void {
    const db = this.#db as Database;
    db.exec("SAVEPOINT step");
    try {
      work();
      db.exec("RELEASE step");
    } catch (error) {
      if (db.inTransaction) db.exec("ROLLBACK TO step; RELEASE step");
      throw error;
    }
  }

  /** Whether rows have been changed since the last call of `noteChanges`, be it in vain. */
  hasChanges(): boolean {
    return this.#totalChanges() !== this.#notedChanges;
  }

  noteChanges(): void {
    this.#notedChanges = this.#totalChanges();
  }

  #totalChanges(): number {
    return Number(this.statements.totalChanges.get()?.["changes"]);
  }

  /** Whether somebody else has committed since it was last taken note of. */
  get foreignCommit(): boolean {
    return this.#foreignCommit;
  }

  /** Whether somebody else has committed since the last call, as far as our own transactions noticed. */
  takeForeignCommit(): boolean {
    const seen = this.#foreignCommit;
    this.#foreignCommit = false;
    return seen;
  }

  /** The same, after looking. */
  pollForeignCommit(): boolean {
    this.#lookForForeignCommit();
    return this.takeForeignCommit();
  }

  /** Throws if the files are no longer ours. Each commit looks by itself. */
  checkFiles(): void {
    this.log.seen(this.#identity.check());
    if (this.#statements !== undefined && this.#locks.areLost()) this.#lockAgain();
  }

  #lookForForeignCommit(): void {
    const version = Number(this.statements.dataVersion.get()?.["data_version"]);
    if (version === this.#dataVersion) return;
    this.#dataVersion = version;
    this.#foreignCommit = true;
    this.#layoutInDoubt = true;
  }

  /** Whether the layout is no longer what the last transaction left. */
  layoutChanged(): boolean {
    return this.#readSchemaVersion() !== this.#schemaVersion;
  }

  #readSchemaVersion(): number {
    return Number(this.statements.schemaVersion.get()?.["schema_version"]);
  }

  /** How many pages the file has, how many of them are free, and whether these can be given back. */
  pages(): { readonly total: number; readonly free: number; readonly givesBack: boolean } {
    const read = (name: "pageCount" | "freePages" | "autoVacuum"): number =>
      Number(Object.values(this.statements[name].get() ?? {})[0]);
    return { total: read("pageCount"), free: read("freePages"), givesBack: read("autoVacuum") !== 0 };
  }

  /** Within a transaction: takes so many free pages off the end of the file. */
  giveBack(pages: number): void {
    // With a semicolon no driver prepares it: its one step of many would be taken for all.
    this.#db?.exec(`PRAGMA incremental_vacuum(${pages});`);
  }

  #checkpoint(mode: "NOOP" | "PASSIVE" | "TRUNCATE"): LogState {
    try {
      const row = (this.#db as Database).prepare(`PRAGMA wal_checkpoint(${mode})`).get();
      return { log: Number(row?.["log"]), checkpointed: Number(row?.["checkpointed"]) };
    } catch (error) {
      // Nobody's misfortune: what was committed is safe in the WAL, and later commits bring another attempt.
      if (isConnectionFailure(error)) this.close();
      this.space.relieves(error);
      return { log: 0, checkpointed: -1 };
    }
  }

  /** Closes; the next use opens anew. */
  close(): void {
    const db = this.#db;
    this.#layoutInDoubt = true;
    this.#dataVersion = -1;
    this.#db = undefined;
    this.#statements = undefined;
    this.#locks.forget();
    try {
      db?.close();
    } finally {
      this.#identity.forgetWal();
      if (this.#mark !== undefined) fs.closeSync(this.#mark);
      this.#mark = undefined;
    }
  }
}

/** Lets the file be shrunk in slices. Possible as long as nothing is in it; later, only `vacuum()` can do it. */
function allowShrinking(db: Database): void {
  if (db.prepare("PRAGMA page_count").get()?.["page_count"] === 0) db.exec("PRAGMA auto_vacuum = INCREMENTAL");
}

/** SQLite does not wait for the exclusive lock that this needs, and somebody else may do it for us. */
function switchToWal(db: Database): void {
  const mode = (): unknown => db.prepare("PRAGMA journal_mode").get()?.["journal_mode"];
  if (mode() === "wal") return;
  db.exec("PRAGMA journal_mode = WAL");
  if (mode() !== "wal") {
    throw new StorageError(
      "BAD_LOCATION",
      "SQLite cannot use a write-ahead log here. Use a directory on a local disk.",
    );
  }
}

function assertSetting(db: Database, name: string, expected: number): void {
  const value = db.prepare(`PRAGMA ${name}`).get()?.[name];
  if (value !== expected) throw new StorageError("IO", `SQLite did not accept PRAGMA ${name} = ${expected}.`);
}

function inTransaction(db: Database, work: () => void): void {
  db.exec("BEGIN IMMEDIATE");
  try {
    work();
    db.exec("COMMIT");
  } catch (error) {
    if (db.inTransaction) db.exec("ROLLBACK");
    throw error;
  }
}

const sleeper = new Int32Array(new SharedArrayBuffer(4));

/** Sleeps; for the engine's thread only. */
function pause(ms: number): void {
  Atomics.wait(sleeper, 0, 0, ms);
}
