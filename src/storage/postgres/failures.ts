import { StorageError, type StorageErrorCode, type StorageOutcome } from "../../errors.ts";

type Meaning = readonly [code: StorageErrorCode, advice: string];

const GONE = "The connection was lost: the server stopped, starts, or was replaced. Workers go on once it is back.";
const SILENT = "The server does not answer. Check its address, the network and the firewall.";
const UNTRUSTED =
  "No secure connection to the server: check its certificate, and `sslmode` and `sslrootcert` of the URL.";

/** By SQLSTATE, or by the class that its first two characters name; whatever is longer comes first. */
const BY_STATE: { readonly [state: string]: Meaning } = {
  "28P01": ["CONNECTION", "The server refused the password. Check the user and the password of the URL or of PG*."],
  "28": ["CONNECTION", "The server does not let this user in. Check the user, and the server's pg_hba.conf."],
  "3D000": ["BAD_LOCATION", "There is no such database. Create it, or check the name in the URL."],
  "42501": [
    "BAD_LOCATION",
    "The user lacks a right. Make it the owner of the schema, or let it create one: GRANT CREATE ON DATABASE … TO …",
  ],
  "3F000": ["FILE_REPLACED", "The schema is gone. Stop all programs that use it and look who dropped it."],
  "42P01": ["FILE_REPLACED", "A table of localqueue is gone. Stop all programs that use it and look who dropped it."],
  "25006": ["READ_ONLY", "The server only reads: it is a standby, or was set so. Connect to the primary."],
  "53100": ["DISK_FULL", "The disk of the server is full. Free some space; workers go on by themselves."],
  "53300": [
    "CONNECTION",
    "The server has no connection left. Raise its max_connections, run fewer processes, or use a pooler.",
  ],
  "53": ["BUSY", "The server is out of memory or of another resource. Try again later."],
  "57014": ["BUSY", "The server cancelled the statement, which took too long. Try again, or raise statement_timeout."],
  "55P03": ["BUSY", "Somebody holds a lock. Try again, or raise lock_timeout."],
  "40": ["BUSY", "Transactions got in each other's way. Try again."],
  "08": ["CONNECTION", GONE],
  "57": ["CONNECTION", GONE],
  "25P03": ["CONNECTION", GONE],
  "25P04": ["CONNECTION", GONE],
  "22P05": ["BAD_LOCATION", "The database cannot keep all texts. Use one with the encoding UTF8."],
  "0A000": ["BAD_LOCATION", "The server cannot do what localqueue needs. Use PostgreSQL 13 or newer."],
  XX001: ["CORRUPT", "The server found damaged data. Stop all writers, keep a copy, and restore a backup."],
  XX002: ["CORRUPT", "The server found a damaged index. Stop all writers, and rebuild it with REINDEX."],
};

/** By the code of the system, or the message where `pg` gives no code. */
const BY_CAUSE: readonly (readonly [RegExp, ...Meaning])[] = [
  [/^ECONNREFUSED$/, "CONNECTION", "No server listens there. Start it, or check the host and the port."],
  [/^(ENOTFOUND|EAI_\w+)$/, "CONNECTION", "The name of the host is not known. Check the URL and the DNS."],
  [/^(ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EHOSTDOWN)$|time(d )?out/i, "CONNECTION", SILENT],
  [/^ERR_(TLS|SSL)_|CERT|^UNABLE_TO_|SSL connection/, "CONNECTION", UNTRUSTED],
  [/client password must be/, "CONNECTION", "The server asks for a password. Give it in the URL, or in PGPASSWORD."],
];

/** The SQLSTATE of what `pg` threw, if the server said it. */
export function sqlState(error: unknown): string | undefined {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) && !/^E[A-Z]{4}$/.test(code) ? code : undefined;
}

/** Whether the connection, not the statement, failed: it is of no use any more. */
export function isConnectionFailure(error: unknown): boolean {
  const state = sqlState(error);
  if (state === undefined) return true;
  const { severity } = error as { severity?: unknown };
  return severity === "FATAL" || severity === "PANIC" || /^(08|57P|25P0[34])/.test(state);
}

/** Turns what `pg` threw into an error of this API. `place` is `describeTarget()`. */
export function toStorageError(error: unknown, place: string, outcome: StorageOutcome = "failed"): StorageError {
  if (error instanceof StorageError) return error;
  const [code, advice] = meaningOf(error);
  const unknown = outcome === "unknown" ? " Whether the write happened is not known." : "";
  return new StorageError(code, `${advice}${unknown} (${place}: ${said(error)})`, { outcome, cause: quoteless(error) });
}

function meaningOf(error: unknown): Meaning {
  const state = sqlState(error);
  if (state !== undefined) {
    return BY_STATE[state] ?? BY_STATE[state.slice(0, 2)] ?? ["IO", "The database failed."];
  }
  if (error instanceof RangeError || error instanceof TypeError) return ["IO", "localqueue failed."];
  const { code, path, message } = (error ?? {}) as NodeJS.ErrnoException;
  if (code === "ENOENT" && path !== undefined && !path.includes(".s.PGSQL.")) {
    return ["BAD_LOCATION", "A file that the settings of the connection name is not there."];
  }
  for (const [pattern, ...meaning] of BY_CAUSE) {
    if (pattern.test(code ?? message ?? "")) return meaning;
  }
  if (code === "ENOENT") return ["CONNECTION", "No server listens there. Start it, or check the socket's directory."];
  return ["CONNECTION", GONE];
}

/** Data and constraints are reported with the values of the row. */
function quotesValues(error: unknown): boolean {
  return /^2[23]/.test(sqlState(error) ?? "");
}

function said(error: unknown): string {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  // Node tries each address of a host; the errors of all of them come as one that has a code and no message.
  const text = typeof message === "string" && message !== "" ? message : String(code ?? "unknown error");
  return quotesValues(error) ? `SQLSTATE ${sqlState(error)}` : text;
}

/** The error without what the server quotes of rows and statements. */
function quoteless(error: unknown): unknown {
  const code = sqlState(error);
  if (code === undefined) return error;
  const { severity, table, constraint, routine } = error as { [name: string]: unknown };
  return Object.assign(new Error(said(error)), { code, severity, table, constraint, routine });
}
