import { writeFileSync } from "node:fs";
import type { Database, Driver, Row, Statement } from "../../dist/storage/sqlite/driver.js";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";

const RESULT_CODES = {
  BUSY: 5,
  NOMEM: 7,
  CANTOPEN: 14,
  CORRUPT: 11,
  FULL: 13,
  CONSTRAINT: 19,
  NOTADB: 26,
  IOERR_READ: 266,
  IOERR_WRITE: 778,
  IOERR_FSYNC: 1034,
} as const;

type Bound = NonNullable<Parameters<Statement["run"]>[0]>;

type ResultName = keyof typeof RESULT_CODES;

/** An error as better-sqlite3 throws it. */
export function sqliteError(name: ResultName): Error {
  return Object.assign(new Error(`injected ${name}`), { name: "SqliteError", code: `SQLITE_${name}` });
}

/** The same as node:sqlite throws it. */
export function builtInError(name: ResultName): Error {
  return Object.assign(new Error(`injected ${name}`), { code: "ERR_SQLITE_ERROR", errcode: RESULT_CODES[name] });
}

export const ERROR_FORMS: readonly { readonly library: string; readonly error: (name: ResultName) => Error }[] = [
  { library: "better-sqlite3", error: sqliteError },
  { library: "node:sqlite", error: builtInError },
];

export interface Fault {
  /** The SQL that it strikes: the whole text, or a pattern. */
  readonly at: string | RegExp;
  /** Only executions with such parameters. */
  readonly with?: (parameters: Bound) => boolean;
  /** Lets so many matching executions pass first. Default 0. */
  readonly after?: number;
  /** Then strikes so many times. Default 1. */
  readonly times?: number;
  /** Thrown; without one, the statement succeeds, and only `strikes` is called. */
  readonly error?: Error;
  /** What really happens underneath: nothing (the default), the statement itself, or a ROLLBACK. */
  readonly really?: "nothing" | "executes" | "rolls back";
  /** Called before anything else happens. */
  readonly strikes?: () => void;
}

/** A fault that was planted; tells how often it has struck. */
export interface Planted {
  readonly struck: number;
}

/**
 * The real SQLite library, with faults at chosen statements: what a full disk, a failing device or a lock held by
 * somebody else would make it report, and what they would really leave behind.
 */
export class FaultyDriver implements Driver {
  readonly #real: Driver = loadDriver();
  readonly name: Driver["name"] = this.#real.name;
  readonly sqliteVersion: string = this.#real.sqliteVersion;
  /** The SQL that was executed, in order; statements that only read are left out. */
  readonly log: string[] = [];
  /** What was written outside a transaction; there must be nothing. */
  readonly autocommitted: string[] = [];
  /** Databases opened so far. */
  opened = 0;
  #database: Database | undefined;
  #faults: { readonly fault: Fault; seen: number; struck: number }[] = [];

  plant(fault: Fault): Planted {
    const planted = { fault, seen: 0, struck: 0 };
    this.#faults.push(planted);
    return planted;
  }

  heal(): void {
    this.#faults = [];
  }

  /** Makes the disk full at so many pages from now on, as far as SQLite can tell. */
  limitPages(pages: number): void {
    this.#database?.exec(`PRAGMA max_page_count = ${pages}`);
  }

  /** How often a statement was executed since the log was cleared. */
  count(sql: string): number {
    return this.log.filter((entry) => entry === sql).length;
  }

  open(path: string): Database {
    // Files that are made anew should not get the inodes of deleted ones by chance.
    writeFileSync(`${path}.inode${this.opened++}`, "");
    const database = this.#real.open(path);
    this.#database = database;
    const strike = <T>(sql: string, rows: readonly Bound[], execute: () => T): T =>
      this.#strike(database, sql, rows, execute);
    return {
      get inTransaction() {
        return database.inTransaction;
      },
      exec: (sql) => strike(sql, [{}], () => database.exec(sql)),
      prepare: (sql) => prepare(database.prepare(sql), sql, strike),
      copyTo: (file, progress) => database.copyTo(file, progress),
      close: () => database.close(),
    };
  }

  #strike<T>(database: Database, sql: string, rows: readonly Bound[], execute: () => T): T {
    if (!/^(SELECT|PRAGMA)/.test(sql)) {
      this.log.push(sql);
      if (!(database.inTransaction || sql.startsWith("BEGIN"))) this.autocommitted.push(sql);
    }
    const met = this.#faults.filter(({ fault: { at, with: matches = () => true } }) => {
      return (typeof at === "string" ? at === sql : at.test(sql)) && rows.some(matches);
    });
    for (const planted of met) planted.seen++;
    for (const planted of met) {
      const { after = 0, times = 1, error, really, strikes } = planted.fault;
      if (planted.seen <= after || planted.struck >= times) continue;
      planted.struck++;
      strikes?.();
      if (error === undefined) continue;
      if (really === "executes") execute();
      if (really === "rolls back") database.exec("ROLLBACK");
      throw error;
    }
    return execute();
  }
}

function prepare(
  statement: Statement,
  sql: string,
  strike: <T>(sql: string, rows: readonly Bound[], execute: () => T) => T,
): Statement {
  return {
    run: (parameters = {}) => strike(sql, [parameters], () => statement.run(parameters)),
    // A fault strikes a statement for several rows if it strikes one of them.
    runRows: (rows) => strike(sql, rows, () => statement.runRows(rows)),
    get: (parameters = {}) => strike(sql, [parameters], () => statement.get(parameters)),
    all: (parameters = {}): Row[] => strike(sql, [parameters], () => statement.all(parameters)),
  };
}

/** Whether a statement's payload is this text. */
export function payloadIs(text: string): (parameters: Bound) => boolean {
  return ({ payload }) => payload instanceof Uint8Array && Buffer.from(payload).toString() === text;
}
