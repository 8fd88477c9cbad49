/**
 * A database of PostgreSQL, and the schema in it that holds our tables. Of the first three there is one at most; with
 * none, the environment (`PGHOST`, `PGUSER`, …) says which database it is.
 */
export interface PostgresTarget {
  readonly connectionString?: string | undefined;
  readonly pool?: PostgresPool | undefined;
  /** What a pool makes its connections of, for a thread that cannot have the pool itself. */
  readonly settings?: object | undefined;
  readonly schema: string;
}

/** A `Pool` of the package `pg`, or what does as it does. */
export interface PostgresPool {
  readonly options: object;
  connect(callback: (error: Error | undefined, client: object | undefined) => void): void;
}

interface Address {
  readonly connectionString?: string;
  readonly host?: string;
  readonly port?: number | string;
  readonly database?: string;
}

export const STANDARD_SCHEMA = "localqueue";

/** Throws a `TypeError`, which never quotes the URL: there may be a password in it. */
export function targetOf(connectionString: string, schema?: string, name = "location"): PostgresTarget {
  const given = parsed(connectionString, name).searchParams.get("schema");
  return { connectionString, schema: schema ?? (given === null ? STANDARD_SCHEMA : checkSchema(given, "schema")) };
}

/** Plain names only, as they need no quotes in `psql` either. */
export function checkSchema(value: unknown, name: string): string {
  if (typeof value === "string" && /^(?!pg_)[a-z_][a-z0-9_]{0,62}$/.test(value)) return value;
  throw new TypeError(
    `Expected \`${name}\` to be the name of a PostgreSQL schema: 1 to 63 lower-case letters, digits and underscores, ` +
      `beginning with no digit and not with pg_, got ${typeof value === "string" ? JSON.stringify(value) : typeof value}`,
  );
}

/** How the target is called in messages: without the user and the password. */
export function describeTarget({ connectionString, pool, settings, schema }: PostgresTarget): string {
  const options: Address = settings ?? pool?.options ?? {};
  const text = connectionString ?? options.connectionString;
  const url = text === undefined ? undefined : parsed(text, "connectionString");
  const from = (parameter: string, part: string | undefined): string | undefined =>
    url?.searchParams.get(parameter) || (part && decodeURIComponent(part)) || undefined;
  const host = from("host", url?.hostname) ?? options.host ?? process.env["PGHOST"] ?? "localhost";
  const port = from("port", url?.port) ?? options.port ?? process.env["PGPORT"] ?? 5432;
  const database = from("database", url?.pathname.slice(1)) ?? options.database ?? process.env["PGDATABASE"];
  const where = host.startsWith("/") ? `socket ${host}` : `${host}:${port}`;
  return `PostgreSQL at ${where}, ${database === undefined ? "" : `database ${database}, `}schema ${schema}`;
}

function parsed(connectionString: string, name: string): URL {
  // A URL may name a user and no host, which then is a socket or in the environment; `URL` insists on one.
  const text = connectionString.replace("@/", "@nohost/");
  const url = /^postgres(ql)?:\/\//i.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || url.hash !== "" || isTorn(url) || !isDecodable(url)) {
    throw new TypeError(
      `Expected \`${name}\` to be a URL like postgres://user:password@host:5432/database, got one that cannot be read. ` +
        "Write special characters of the user and the password as % and two digits: encodeURIComponent() does that",
    );
  }
  if (url.hostname === "nohost") url.hostname = "";
  return url;
}

/** Whether a password with a slash or a question mark was taken for something else. */
function isTorn({ username, pathname, search }: URL): boolean {
  return pathname.includes("@") || (username === "" && search.includes("@"));
}

function isDecodable({ username, password, hostname, pathname }: URL): boolean {
  try {
    for (const part of [username, password, hostname, pathname]) decodeURIComponent(part);
    return true;
  } catch {
    return false;
  }
}
