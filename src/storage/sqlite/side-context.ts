import path from "node:path";
import { type Database, type Driver, loadDriver } from "./driver.ts";
import { assertOneLibrary, DATABASE_FILE, FileIdentity } from "./files.ts";
import { END, SIGNAL } from "./protocol.ts";

/** A task beside the engine: what it is given and returns crosses from thread to thread. */
export type SideTask<Input, Result> = (input: Input, context: SideContext) => Result | Promise<Result>;

/** What is written meanwhile does not keep readers out; somebody who recovers or deletes the WAL does, for a moment. */
const BUSY_MS = 5000;

/** What a task beside the engine works with. The engine has opened the database before, and keeps it open. */
export class SideContext {
  readonly driver: Driver = loadDriver();
  readonly directory: string;
  readonly file: string;
  readonly #signals: Int32Array;
  readonly #post: (progress: unknown) => void;
  readonly #identity: FileIdentity;
  #reader: Database | undefined;

  constructor(directory: string, signals: Int32Array, post: (progress: unknown) => void) {
    this.directory = directory;
    this.file = path.join(directory, DATABASE_FILE);
    this.#signals = signals;
    this.#post = post;
    this.#identity = new FileIdentity(this.file);
  }

  /** A connection that only reads, kept for the next task. Throws FILE_REPLACED if the files are other ones by now. */
  reader(): Database {
    this.#reader ??= this.#open();
    this.#identity.check();
    return this.#reader;
  }

  #open(): Database {
    assertOneLibrary(this.file, this.driver.name);
    const db = this.driver.open(this.file);
    try {
      // Not opened read-only: such a connection cannot recover the WAL of a process that was killed.
      db.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
      db.exec("PRAGMA query_only = ON");
      db.exec("PRAGMA fullfsync = ON");
      db.exec("PRAGMA trusted_schema = OFF");
      db.exec("PRAGMA cell_size_check = ON");
      db.prepare("SELECT 1 FROM sqlite_schema").get();
    } catch (error) {
      db.close();
      throw error;
    }
    return db;
  }

  /** Whether a long task is to end early: nobody waits for it any more. */
  cancelled(): boolean {
    return Atomics.load(this.#signals, SIGNAL.end) !== END.no;
  }

  /** Tells whoever waits how far the task is. */
  progress(value: unknown): void {
    this.#post(value);
  }

  /** To be called after an error: whatever it was, the next task opens anew. */
  close(): void {
    const db = this.#reader;
    this.#reader = undefined;
    try {
      db?.close();
    } finally {
      this.#identity.forgetWal();
    }
  }
}
