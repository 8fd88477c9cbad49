import { createRequire } from "node:module";
import type { ClientConfig } from "pg";
import { StorageError } from "../../errors.ts";
import { settlesWithin } from "../../timers.ts";
import { describeTarget, type PostgresPool, type PostgresTarget } from "../postgres-target.ts";
import { toStorageError } from "./failures.ts";
import { type Client, cut } from "./rows.ts";

const require = createRequire(import.meta.url);

export type { PostgresTarget } from "../postgres-target.ts";

/** A connection: our own, or one that is borrowed from a pool. */
export interface Session {
  readonly client: Client;
  /** Gives it back. `broken`: nobody shall use it again. */
  close(broken?: boolean): Promise<void>;
}

type PooledClient = Client & { release(broken?: boolean): void };

interface PostgresLibrary {
  readonly Client: new (settings: ClientConfig) => Client;
}

type PoolSettings = ClientConfig & {
  readonly password?: string | ((settings: unknown) => string | Promise<string>) | undefined;
};

/** A server that is switched off does not refuse: it just never answers. */
const CONNECT_MS = 10_000;
/** The other side may be gone without a word. */
const CLOSE_MS = 500;
/** So that a router on the way does not forget an idle connection, and an end of the server is noticed. */
const KEEP_ALIVE_MS = 30_000;
/** 13 was the first with `pg_current_xact_id()`. */
const OLDEST_SERVER = 130_000;

/** What crosses to another thread of what a pool was made with. */
const SETTINGS = [
  "connectionString",
  "host",
  "port",
  "user",
  "database",
  "sslnegotiation",
  "application_name",
  "options",
  "statement_timeout",
  "lock_timeout",
  "idle_in_transaction_session_timeout",
  "query_timeout",
  "connectionTimeoutMillis",
  "keepAlive",
  "keepAliveInitialDelayMillis",
  "enableChannelBinding",
] as const;

let library: PostgresLibrary | undefined;

/** Connects, or borrows a connection. Rejects with `StorageError`. */
export async function openSession(target: PostgresTarget): Promise<Session> {
  try {
    return target.pool === undefined ? await connect(target) : await borrow(target.pool);
  } catch (error) {
    throw toStorageError(error, describeTarget(target));
  }
}

async function connect(target: PostgresTarget): Promise<Session> {
  const { Client } = loadLibrary();
  const client = new Client(clientConfig(target));
  const end = async (): Promise<void> => {
    // What waits for that must not be left alone.
    client.ref();
    if (
      !(await settlesWithin(
        client.end().catch(() => {}),
        CLOSE_MS,
      ))
    )
      cut(client);
  };
  // Without a listener, a server that ends an idle connection would end the program.
  client.on("error", () => {});
  try {
    await client.connect();
  } catch (error) {
    void end();
    throw error;
  }
  return { client, close: end };
}

async function borrow(pool: PostgresPool): Promise<Session> {
  const ignore = (): void => {};
  const connecting = new Promise<PooledClient>((resolve, reject) => {
    // Not its promise: the server may end the connection in the very moment in which it becomes ours.
    pool.connect((error, client) => {
      (client as PooledClient | undefined)?.on("error", ignore);
      if (client === undefined) reject(error);
      else resolve(client as PooledClient);
    });
  });
  const client = await inTime(connecting);
  return {
    client,
    close: async (broken = false) => {
      client.off("error", ignore);
      client.release(broken);
    },
  };
}

/** A pool whose connections are all in use gives none; one that comes too late goes back. */
async function inTime(connecting: Promise<PooledClient>): Promise<PooledClient> {
  if (await settlesWithin(connecting, CONNECT_MS)) return await connecting;
  connecting.then(
    (client) => client.release(),
    () => {},
  );
  throw new StorageError("CONNECTION", "The pool gave no connection in time. Raise its `max`, or find who keeps them.");
}

/** The same target for another thread: what a pool was told, as far as that can cross. */
export async function forOtherThread(target: PostgresTarget): Promise<PostgresTarget> {
  const { pool, schema } = target;
  if (pool === undefined) return target;
  const options: PoolSettings = pool.options;
  const settings: { [name: string]: unknown } = {};
  for (const name of SETTINGS) {
    if (options[name] !== undefined) settings[name] = options[name];
  }
  const { password, ssl } = options;
  // These two hide themselves from whoever copies the options.
  settings["password"] = typeof password === "function" ? await password(options) : password;
  settings["ssl"] = typeof ssl === "object" && ssl !== null ? cloneable({ ...ssl, key: ssl.key }) : ssl;
  return { settings, schema };
}

/** Without functions: a check of one's own of the server's name gives way to the usual one, which is stricter. */
function cloneable(settings: object): object {
  return Object.fromEntries(
    Object.entries(settings).filter(([, value]) => typeof value !== "function" && value !== undefined),
  );
}

function clientConfig({ connectionString, settings }: PostgresTarget): ClientConfig {
  return {
    fallback_application_name: "localqueue",
    connectionTimeoutMillis: connectTimeoutMs(connectionString),
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    ...(connectionString === undefined ? {} : { connectionString }),
    ...settings,
    pipeline: true,
  };
}

/** `pg` itself reads neither of these; 0 = for ever, as with `psql`. */
function connectTimeoutMs(connectionString: string | undefined): number {
  const inUrl = connectionString === undefined ? null : /[?&]connect_timeout=(\d+)/.exec(connectionString)?.[1];
  const given = inUrl ?? process.env["PGCONNECT_TIMEOUT"] ?? "";
  return /^\d{1,6}$/.test(given) ? Number(given) * 1000 : CONNECT_MS;
}

function loadLibrary(): PostgresLibrary {
  try {
    library ??= require("pg") as PostgresLibrary;
    return library;
  } catch (error) {
    throw notLoaded(error);
  }
}

function notLoaded(cause: unknown): StorageError {
  const problem = (cause as NodeJS.ErrnoException).code === "MODULE_NOT_FOUND" ? "is not installed" : "does not load";
  const message = `PostgreSQL needs the package pg, which ${problem}. Type: npm install pg@8`;
  return new StorageError("BAD_LOCATION", message, { cause });
}

/** To be asked before anything else is done on a server. Throws a `StorageError` if it cannot be used. */
export async function assertUsable({ client }: Session, target: PostgresTarget): Promise<void> {
  const { rows } = await client.query<{ version: string; encoding: string }>(
    "SELECT current_setting('server_version_num') AS version, current_setting('server_encoding') AS encoding",
  );
  const { version, encoding } = rows[0] as { version: string; encoding: string };
  if (Number(version) < OLDEST_SERVER) {
    const name = `${Math.floor(Number(version) / 10_000)}`;
    throw new StorageError(
      "BAD_LOCATION",
      `The server is PostgreSQL ${name}, localqueue needs 13 or newer: upgrade it, or use another (${describeTarget(target)})`,
    );
  }
  if (encoding !== "UTF8") {
    throw new StorageError(
      "BAD_LOCATION",
      `The database keeps its texts in ${encoding}, localqueue needs UTF8: create one with ENCODING 'UTF8' TEMPLATE ` +
        `template0 (${describeTarget(target)})`,
    );
  }
}
