import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { SimpleQueue, Worker } from "localqueue";
import pg from "pg";
import { beforeAll, describe, expect, test } from "vitest";
import { runCli } from "./support/cli.ts";
import { PostgresServer } from "./support/postgres-server.ts";
import { rejection } from "./support/storage.ts";
import { until } from "./support/until.ts";
import { drained, start } from "./support/worker.ts";

const PASSWORD = "p@ss:word/1";

let server: PostgresServer;
let directory: string;

beforeAll(async () => {
  directory = mkdtempSync(path.join(tmpdir(), "localqueue-tls-"));
  certify();
  const read = (name: string): string => readFileSync(path.join(directory, name), "utf8");
  server = await PostgresServer.start({
    settings: { ssl: "on" },
    access: ["hostssl all app 127.0.0.1/32 scram-sha-256", "hostssl all postgres 127.0.0.1/32 trust"],
    files: { "server.key": read("server.key"), "server.crt": read("server.crt") },
  });
  const client = new pg.Client({ connectionString: server.url(), ssl: { ca: read("ca.crt") } });
  await client.connect();
  await client.query(`SET password_encryption = 'scram-sha-256'; CREATE ROLE app LOGIN PASSWORD '${PASSWORD}';
    GRANT CREATE ON DATABASE postgres TO app`);
  await client.end();
  return async () => {
    await server.remove();
    rmSync(directory, { recursive: true });
  };
});

/** A key for 127.0.0.1, and a certificate of it that an authority of our own has signed. */
function certify(): void {
  const openssl = (line: string): void => {
    const { status, error, stderr } = spawnSync("openssl", line.split(" "), { cwd: directory, encoding: "utf8" });
    if (status !== 0) throw new Error(`openssl ${line}: ${error?.message ?? stderr}`);
  };
  writeFileSync(path.join(directory, "names"), "subjectAltName=IP:127.0.0.1");
  openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.crt -subj /CN=authority");
  openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1");
  openssl("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out server.crt -extfile names");
}

function location(parameters: Readonly<Record<string, string>>, password = PASSWORD): string {
  const url = new URL(server.url("postgres", parameters));
  url.username = "app";
  url.password = encodeURIComponent(password);
  return url.href;
}

const trusting = (): Record<string, string> => ({
  sslmode: "verify-full",
  sslrootcert: path.join(directory, "ca.crt"),
});

describe("with TLS", () => {
  test("queues and workers use a server whose certificate is checked against an authority of one's own", async () => {
    await using queue = new SimpleQueue(location(trusting()), { leaseMs: 600 });
    await queue.put(1);
    const worker = new Worker(queue, async (job) => {
      const { leaseExpiresAt } = job;
      await until(() => job.leaseExpiresAt.getTime() > leaseExpiresAt.getTime() + 600); // renewed for longer than a lease
    });
    void start(worker);
    await drained(queue);
    expect(await queue.find({ id: 1 })).toMatchObject({ state: "acked", attempts: 1 });
    expect(await runCli(["stats", location(trusting()), "--json"])).toMatchObject({
      code: 0,
      stdout: '{"ready":0,"processing":0,"acked":1,"failed":0}\n',
    });
  });

  test.each<[string, () => string, RegExp]>([
    ["a certificate that nobody vouches for", () => location({ sslmode: "verify-full" }), /certificate/],
    ["a connection in the clear", () => location({ sslmode: "disable" }), /pg_hba\.conf/],
    ["a wrong password", () => location(trusting(), "wrong-secret"), /password/],
  ])("%s is refused, with what to do and without the password", async (_, where, advice) => {
    await using queue = new SimpleQueue(where());
    const error = await rejection(queue.put(1, { timeoutMs: 500 }));
    expect(error).toMatchObject({ code: "CONNECTION", outcome: "failed", message: expect.stringMatching(advice) });
    const { code, stdout, stderr } = await runCli(["stats", where()]);
    expect([code, stdout]).toEqual([1, ""]);
    for (const text of [(error as Error).message, stderr]) expect(text).not.toMatch(/p@ss|p%40ss|wrong-secret/);
  });
});
