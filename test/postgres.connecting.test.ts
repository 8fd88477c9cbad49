import { once } from "node:events";
import net from "node:net";
import { SimpleQueue, StorageError } from "localqueue";
import { postgres } from "localqueue/postgres";
import pg from "pg";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { assertUsable } from "../dist/storage/postgres/connect.js";
import { runCli } from "./support/cli.ts";
import { freePort, PostgresServer } from "./support/postgres-server.ts";
import { tempDirectory } from "./support/temp.ts";

let server: PostgresServer;

/** A location as this user. */
function url(user = "ada:open-sesame", database = "app", parameters = ""): string {
  return `postgres://${user}@127.0.0.1:${server.port}/${database}${parameters === "" ? "" : `?${parameters}`}`;
}

async function administer(...statements: readonly string[]): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: server.url() });
  await client.connect();
  try {
    let result = await client.query("SELECT 1");
    for (const statement of statements) result = await client.query(statement);
    return result;
  } finally {
    await client.end();
  }
}

beforeAll(async () => {
  server = await PostgresServer.start({
    access: ["host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256"],
  });
  await administer(
    "CREATE ROLE ada LOGIN PASSWORD 'open-sesame'",
    "CREATE ROLE guest LOGIN PASSWORD 'open-sesame'",
    "CREATE ROLE crowd LOGIN PASSWORD 'open-sesame' CONNECTION LIMIT 0",
    "CREATE DATABASE app OWNER ada",
    "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
  );
  return () => server.remove();
});

async function failureOf(location: ConstructorParameters<typeof SimpleQueue>[0]): Promise<unknown> {
  await using queue = new SimpleQueue(location);
  return await queue.put("a job").catch((error: unknown) => error);
}

/** All that a logger could find in an error. */
function everythingIn(error: unknown): string {
  if (typeof error !== "object" || error === null) return String(error);
  return Object.getOwnPropertyNames(error)
    .map((name) => everythingIn(Reflect.get(error, name)))
    .join("\n");
}

describe("a database that cannot be used is told by a code and a sentence, never with the password", () => {
  test.each<[string, () => string, string, string]>([
    ["a wrong password", () => url("ada:open-sesam"), "CONNECTION", "The server refused the password."],
    ["no password", () => url("ada"), "CONNECTION", "The server asks for a password."],
    ["an unknown user", () => url("bob:open-sesame"), "CONNECTION", "The server refused the password."],
    ["no such database", () => url(undefined, "nowhere"), "BAD_LOCATION", "There is no such database."],
    ["no right to create the schema", () => url("guest:open-sesame"), "BAD_LOCATION", "GRANT CREATE ON DATABASE"],
    ["no connection left", () => url("crowd:open-sesame"), "CONNECTION", "The server has no connection left."],
    ["no encryption", () => url(undefined, undefined, "sslmode=verify-full"), "CONNECTION", "No secure connection"],
    [
      "a certificate that is not there",
      () => url(undefined, undefined, "sslmode=verify-full&sslrootcert=/none.crt"),
      "BAD_LOCATION",
      "A file that the settings of the connection name is not there.",
    ],
    ["another encoding", () => url("postgres:open-sesame", "latin"), "BAD_LOCATION", "keeps its texts in LATIN1"],
    [
      "a server that only reads",
      () => url(undefined, undefined, "options=-c%20default_transaction_read_only%3Don"),
      "READ_ONLY",
      "Connect to the primary.",
    ],
    [
      "a host without a name",
      () => "postgres://ada:open-sesame@host.invalid/app",
      "CONNECTION",
      "The name of the host",
    ],
    ["a socket that is not there", () => "postgres://ada:open-sesame@/app?host=/none", "CONNECTION", "the socket's"],
  ])("%s", async (_, location, code, message) => {
    const error = await failureOf(location());
    expect(error).toBeInstanceOf(StorageError);
    expect(error).toMatchObject({ code, outcome: "failed", message: expect.stringContaining(message) });
    expect(everythingIn(error)).not.toContain("open-sesam");
    const { code: exit, stdout, stderr } = await runCli(["put", location(), "1"], { cwd: tempDirectory() });
    expect({ exit, stdout }).toEqual({ exit: 1, stdout: "" });
    expect(stderr).toContain(`localqueue: ${code}: `);
    expect(stderr).not.toContain("open-sesam");
  });

  test("a port where nobody listens", async () => {
    const error = await failureOf(`postgres://ada:open-sesame@127.0.0.1:${await freePort()}/app`);
    expect(error).toMatchObject({ code: "CONNECTION", message: expect.stringContaining("No server listens there.") });
  });

  test("a server that does not answer, as soon as the time for that is over", async () => {
    const silent = net.createServer(() => {}).listen(0, "127.0.0.1");
    await once(silent, "listening");
    onTestFinished(() => void silent.close());
    const { port } = silent.address() as net.AddressInfo;
    const error = await failureOf(`postgres://ada:open-sesame@127.0.0.1:${port}/app?connect_timeout=1`);
    expect(error).toMatchObject({
      code: "CONNECTION",
      message: expect.stringContaining("The server does not answer."),
    });
  });

  test("a schema of a newer version", async () => {
    const location = url(undefined, undefined, "schema=newer");
    await using queue = new SimpleQueue(location);
    await queue.put(1);
    const client = new pg.Client({ connectionString: location });
    await client.connect();
    await client.query("INSERT INTO newer.versions (version) VALUES (99)");
    await client.end();
    const { stderr } = await runCli(["stats", location, "--json"]);
    expect(stderr).toContain("localqueue: NEWER_SCHEMA: The schema was written by a newer version of localqueue");
  });

  test("a server that is too old", async () => {
    const rows = [{ version: "120022", encoding: "UTF8" }];
    const session = { client: { query: async () => ({ rows }) }, close: async () => {} };
    await expect(assertUsable(session as never, { schema: "localqueue" })).rejects.toMatchObject({
      code: "BAD_LOCATION",
      message: expect.stringContaining("The server is PostgreSQL 12, localqueue needs 13 or newer"),
    });
  });
});

describe("a connection is made", () => {
  test("with the right to own a schema, where somebody else has created it", async () => {
    const admin = new pg.Client({ connectionString: server.url("app") });
    await admin.connect();
    await admin.query("CREATE SCHEMA prepared AUTHORIZATION guest");
    await admin.end();
    await using queue = new SimpleQueue(url("guest:open-sesame", "app", "schema=prepared"));
    expect(await queue.put(1)).toEqual({ id: 1, inserted: true });
  });

  test("from what the environment says, under the name of the package", async () => {
    const env = {
      PGHOST: "127.0.0.1",
      PGPORT: `${server.port}`,
      PGUSER: "ada",
      PGPASSWORD: "open-sesame",
      PGDATABASE: "app",
    };
    expect(await runCli(["put", "postgres://?schema=env", "1"], { env })).toMatchObject({ code: 0, stderr: "" });
    const name = ["node", "-e", "1"];
    const work = await runCli(["work", "postgres://?schema=env", "--drain", "--", ...name], { env });
    expect(work).toMatchObject({ code: 0 });
    expect((await runCli(["stats", "postgres://?schema=env", "--json"], { env })).stdout).toContain('"acked":1');
  });

  test.each([
    ["localqueue", ""],
    ["mailer", "&application_name=mailer"],
  ])("which the server knows as %s", async (name, parameter) => {
    await using queue = new SimpleQueue(url(undefined, undefined, `schema=named${parameter}`));
    await queue.put(1);
    const { rows } = await administer(`SELECT 1 FROM pg_stat_activity WHERE application_name = '${name}'`);
    expect(rows.length).toBeGreaterThan(0);
  });

  test("by a pool of the program's own, which stays open", async () => {
    let asked = 0;
    const pool = new pg.Pool({
      host: "127.0.0.1",
      port: server.port,
      user: "ada",
      database: "app",
      max: 2,
      password: () => {
        asked++;
        return "open-sesame";
      },
    });
    onTestFinished(() => pool.end());
    const queue = new SimpleQueue<number>(postgres({ pool, schema: "pooled" }));
    await Promise.all(Array.from({ length: 50 }, (_, n) => queue.put(n)));
    const waiting = queue.getMany(50, { timeoutMs: 5_000 });
    expect(await waiting).toHaveLength(50);
    await queue.close();
    expect(asked).toBeGreaterThan(0);
    expect(pool.totalCount).toBeLessThanOrEqual(2);
    expect((await pool.query("SELECT 1 AS one")).rows).toEqual([{ one: 1 }]);
  });

  test("by a pool that cannot connect, whose password nobody sees", async () => {
    const pool = new pg.Pool({ connectionString: url("ada:open-sesam") });
    onTestFinished(() => pool.end());
    const error = await failureOf(postgres({ pool }));
    expect(error).toMatchObject({ code: "CONNECTION" });
    expect(everythingIn(error)).not.toContain("open-sesam");
  });
});
