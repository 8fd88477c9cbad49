import { createRequire } from "node:module";
import { StorageError, type StorageErrorCode, type StorageOutcome } from "../../errors.ts";

const require = createRequire(import.meta.url);

/**
 * The two SQLite libraries that can serve us behind one small structural interface: the built-in `node:sqlite`, and
 * the optional peer `better-sqlite3` where the built-in one is missing or carries an unsafe SQLite.
 */
export interface Driver {
  readonly name: "node:sqlite" | "better-sqlite3";
  readonly sqliteVersion: string;
  open(path: string): Database;
}

export interface Database {
  /** Whether the transaction that was begun still stands: some errors end it silently. */
  readonly inTransaction: boolean;
  exec(sql: string): void;
  /** Prepares a statement whose parameters are written `:name`. */
  prepare(sql: string): Statement;
  /**
   * Copies the whole database, as this connection sees it, into an empty file. `progress` is told how many pages are
   * done; what it throws ends the copying.
   */
  copyTo(file: string, progress: CopyProgress): Promise<void>;
  close(): void;
}

export type CopyProgress = (done: number, total: number) => void;

type Value = number | string | Uint8Array | null;
type Parameters = { readonly [name: string]: Value };
export type Row = Record<string, Value>;

interface Changes {
  readonly changes: number;
  readonly lastInsertRowid: number;
}

export interface Statement {
  run(parameters?: Parameters): Changes;
  /** For a statement that says the same for several rows: the parameters of each. */
  runRows(rows: readonly Parameters[]): Changes;
  get(parameters?: Parameters): Row | undefined;
  /** Always the whole result: a statement that is left unfinished holds a read transaction open. */
  all(parameters?: Parameters): Row[];
}

interface NativeStatement {
  run(...values: Value[]): { changes: number | bigint; lastInsertRowid: number | bigint };
  get(...values: Value[]): unknown;
  all(...values: Value[]): unknown[];
}

interface NativeDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): NativeStatement;
  close(): unknown;
}

interface PagesLeft {
  readonly totalPages: number;
  readonly remainingPages: number;
}

/** Pages that are copied at a time: a few milliseconds. */
const COPY_PAGES = 1000;

/** The first release without the race in which a WAL reset loses pages, and its back-ports. */
export function isSafeSqlite(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split(".").map(Number);
  if (major !== 3) return major > 3;
  return minor > 51 || (minor === 51 && patch >= 3) || (minor === 50 && patch >= 7) || (minor === 44 && patch >= 6);
}

/** The best library on this machine. An unsafe built-in SQLite is used only when there is no other. */
export function loadDriver(): Driver {
  const builtIn = loadBuiltIn();
  if (builtIn !== undefined && isSafeSqlite(builtIn.sqliteVersion)) return builtIn;
  const { driver: peer, cause } = loadPeer();
  const driver = peer ?? builtIn;
  if (driver === undefined) {
    throw new StorageError("BAD_LOCATION", `No SQLite found: ${adviceOn(cause)}`, { cause });
  }
  return driver;
}

/** `cause` is why the peer could not be loaded. */
function adviceOn(cause: unknown): string {
  const { bun, node } = process.versions;
  if (bun !== undefined) return `Bun ${bun} has no usable node:sqlite. Use Bun 1.4 or newer.`;
  const missing = (cause as NodeJS.ErrnoException | undefined)?.code === "MODULE_NOT_FOUND";
  const peer = missing
    ? "Install the package better-sqlite3@~12.11"
    : "The package better-sqlite3 is there, but was not built for this Node or is too new for it: install better-sqlite3@~12.11 again";
  return `Node ${node} has no usable node:sqlite. ${peer}, or use Node 22.22.3, 24.15 or newer.`;
}

function loadBuiltIn(): Driver | undefined {
  if (process.versions["sqlite"] === undefined) return undefined;
  const library = loadNodeSqlite();
  if (library === undefined) return undefined;
  const { DatabaseSync, backup } = library;
  const probe = new DatabaseSync(":memory:");
  const sqliteVersion = versionOf(probe);
  // Early versions cannot tell whether a transaction still stands, which we must know after every error.
  const usable = "isTransaction" in probe;
  probe.close();
  if (!usable) return undefined;
  const open = (path: string): Database => {
    const native = new DatabaseSync(path);
    const copy: Copy = (file, progress) => backup(native, file, { rate: COPY_PAGES, progress });
    return wrap(native, () => native.isTransaction, copy);
  };
  return { name: "node:sqlite", sqliteVersion, open };
}

interface NodeSqlite {
  readonly DatabaseSync: new (path: string) => NativeDatabase & { readonly isTransaction: boolean };
  readonly backup: (
    source: NativeDatabase,
    file: string,
    options: { readonly rate: number; readonly progress: (left: PagesLeft) => void },
  ) => Promise<unknown>;
}

type Copy = (file: string, progress: (left: PagesLeft) => void) => Promise<unknown>;

/** Node 22.12 has it behind a flag, and any version may have been started without it. */
function loadNodeSqlite(): NodeSqlite | undefined {
  try {
    return withoutExperimentalWarning(() => require("node:sqlite") as NodeSqlite);
  } catch {
    return undefined;
  }
}

interface BetterSqlite extends NativeDatabase {
  readonly inTransaction: boolean;
  /** `progress` returns how many pages are next. */
  backup(file: string, options: { readonly progress: (left: PagesLeft) => number }): Promise<unknown>;
}

function loadPeer(): { driver?: Driver; cause?: unknown } {
  try {
    const Native = require("better-sqlite3") as new (path: string) => BetterSqlite;
    const probe = new Native(":memory:");
    const sqliteVersion = versionOf(probe);
    probe.close();
    const open = (path: string): Database => {
      const native = new Native(path);
      const copy: Copy = (file, progress) => {
        const report = (left: PagesLeft): number => {
          progress(left);
          return COPY_PAGES;
        };
        return native.backup(file, { progress: report });
      };
      return wrap(native, () => native.inTransaction, copy);
    };
    return { driver: { name: "better-sqlite3", sqliteVersion, open } };
  } catch (cause) {
    return { cause };
  }
}

/** Asked of the library itself: `process.versions` names what the runtime was built with, or merely claims to have. */
function versionOf(probe: NativeDatabase): string {
  return (probe.prepare("SELECT sqlite_version() AS version").get() as { version: string }).version;
}

/** Node 22 announces that its SQLite is experimental; that one warning, and only that one, is swallowed. */
function withoutExperimentalWarning<T>(load: () => T): T {
  const { emitWarning } = process;
  process.emitWarning = ((warning: string | Error, ...rest: unknown[]) => {
    if (String(warning).includes("SQLite is an experimental feature")) return;
    Reflect.apply(emitWarning, process, [warning, ...rest]);
  }) as typeof emitWarning;
  try {
    return load();
  } finally {
    process.emitWarning = emitWarning;
  }
}

/**
 * Deno's `exec` throws without SQLite's result code, which tells a lock from a fault; its statements throw with it.
 * They are kept for the next time, except for pragmas, which take effect when they are prepared.
 */
function execWithCodes(native: NativeDatabase): (sql: string) => void {
  const kept = new Map<string, NativeStatement>();
  return (sql) => {
    if (sql.includes(";")) return void native.exec(sql);
    const statement = kept.get(sql) ?? native.prepare(sql);
    if (!sql.startsWith("PRAGMA")) kept.set(sql, statement);
    statement.run();
  };
}

function wrap(native: NativeDatabase, inTransaction: () => boolean, copy: Copy): Database {
  return {
    get inTransaction() {
      return inTransaction();
    },
    exec: process.versions["deno"] === undefined ? (sql) => void native.exec(sql) : execWithCodes(native),
    prepare: (sql) => prepare(native, sql),
    copyTo: async (file, progress) => {
      await copy(file, ({ totalPages, remainingPages }) => progress(totalPages - remainingPages, totalPages));
    },
    close: () => void native.close(),
  };
}

/** Node 22 binds bytes as NULL if there is no memory behind them, as with an empty buffer that came from another thread. */
const NO_BYTES = new Uint8Array(1).subarray(1);

/** Named parameters, bound by position: the libraries disagree on every other way to reuse a parameter. */
function prepare(native: NativeDatabase, sql: string): Statement {
  const names: string[] = [];
  const text = sql.replace(/:([a-zA-Z]\w*)/g, (_, name: string) => {
    names.push(name);
    return "?";
  });
  const statement = native.prepare(text);
  const bind = (list: Value[], from: number, to: number, parameters: Parameters | undefined): Value[] => {
    for (let i = from; i < to; i++) {
      const value = parameters?.[names[i] as string] as Value;
      list[i] = value instanceof Uint8Array && value.length === 0 ? NO_BYTES : value;
    }
    return list;
  };
  const values = (parameters: Parameters | undefined): Value[] =>
    bind(new Array<Value>(names.length), 0, names.length, parameters);
  const run = (list: Value[]): Changes => {
    const { changes, lastInsertRowid } = statement.run(...list);
    return { changes: Number(changes), lastInsertRowid: Number(lastInsertRowid) };
  };
  return {
    run: (parameters) => run(values(parameters)),
    runRows: (rows) => {
      const list = new Array<Value>(names.length);
      const each = names.length / rows.length;
      for (let i = 0; i < rows.length; i++) bind(list, i * each, (i + 1) * each, rows[i]);
      return run(list);
    },
    get: (parameters) => statement.get(...values(parameters)) as Row | undefined,
    all: (parameters) => statement.all(...values(parameters)) as Row[],
  };
}

const PRIMARY_CODES: readonly (readonly [name: string, number: number, code: StorageErrorCode])[] = [
  ["SQLITE_BUSY", 5, "BUSY"],
  ["SQLITE_LOCKED", 6, "BUSY"],
  ["SQLITE_PROTOCOL", 15, "BUSY"],
  ["SQLITE_FULL", 13, "DISK_FULL"],
  // The -shm file cannot grow: hardly ever for another reason.
  ["SQLITE_IOERR_SHMSIZE", 4874, "DISK_FULL"],
  ["SQLITE_READONLY_DBMOVED", 1032, "FILE_REPLACED"],
  ["SQLITE_READONLY", 8, "READ_ONLY"],
  ["SQLITE_PERM", 3, "READ_ONLY"],
  ["SQLITE_CORRUPT", 11, "CORRUPT"],
  ["SQLITE_NOTADB", 26, "NOT_A_DATABASE"],
];

/** The code of this API for what a library threw: matched by SQLite's result codes, never by text. */
export function storageErrorCode(error: unknown): StorageErrorCode {
  const { code, errcode } = (error ?? {}) as { code?: unknown; errcode?: unknown };
  for (const [name, number, ours] of PRIMARY_CODES) {
    if (typeof errcode === "number" ? errcode === number || (errcode & 0xff) === number : isOrExtends(code, name)) {
      return ours;
    }
  }
  return "IO";
}

/** IOERR, CORRUPT, NOTADB, NOMEM, CANTOPEN: not the statement but the connection failed; it must be opened anew. */
export function isConnectionFailure(error: unknown): boolean {
  const { code, errcode } = (error ?? {}) as { code?: unknown; errcode?: unknown };
  if (typeof errcode === "number") return [10, 11, 26, 7, 14].includes(errcode & 0xff);
  const names = ["SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_NOMEM", "SQLITE_CANTOPEN"];
  return names.some((name) => isOrExtends(code, name));
}

function isOrExtends(code: unknown, name: string): boolean {
  return code === name || (typeof code === "string" && code.startsWith(`${name}_`));
}

const ADVICE: { readonly [C in StorageErrorCode]?: string } = {
  BUSY: "Another process or connection holds the write lock. Try again, or allow more time with `timeoutMs`.",
  DISK_FULL: "The disk is full. Free some space; workers go on by themselves.",
  READ_ONLY: "The database cannot be written. Check the owner and the permissions of the directory and its files.",
  CORRUPT: "The database is damaged. Stop all writers, keep a copy of the files, and restore a backup.",
  NOT_A_DATABASE: "The file is not a SQLite database. It was left as it is; choose another directory.",
  FILE_REPLACED:
    "The database file was moved, deleted or replaced while it was open. Stop all writers and check the path.",
};

/** Turns what a library threw into an error of this API. */
export function toStorageError(error: unknown, path: string, outcome: StorageOutcome = "failed"): StorageError {
  if (error instanceof StorageError) return error;
  const code = storageErrorCode(error);
  const said = error instanceof Error ? error.message : "unknown error";
  const unknown = outcome === "unknown" ? " Whether the write happened is not known." : "";
  return new StorageError(code, `${ADVICE[code] ?? "The database failed."}${unknown} (${path}: ${said})`, {
    outcome,
    cause: error,
  });
}
