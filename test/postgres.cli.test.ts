import { readdirSync } from "node:fs";
import { SimpleQueue } from "localqueue";
import pg from "pg";
import { describe, expect, test } from "vitest";
import { runCli } from "./support/cli.ts";
import { tempLocation } from "./support/location.ts";
import { tempDirectory } from "./support/temp.ts";

/** A location whose URL has a password, which the server does not ask for. */
function withPassword(): string {
  const location = new URL(tempLocation());
  location.password = "open-sesame";
  return location.href;
}

async function schemaExists(location: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: location });
  await client.connect();
  const schema = new URL(location).searchParams.get("schema");
  const { rows } = await client.query("SELECT to_regnamespace($1) IS NOT NULL AS exists", [schema]);
  await client.end();
  return rows[0].exists;
}

const REPORTS = ["stats", "failed list", "failed show", "diagnostics", "check", "vacuum", "bus stats", "purge"];

test.each(REPORTS)("%s of a schema that is not there creates nothing, and says so", async (name) => {
  const location = withPassword();
  const ids = name === "failed show" ? ["1"] : [];
  const more = name === "purge" ? ["--older-than", "0"] : [];
  const cwd = tempDirectory();
  const { code, stdout, stderr } = await runCli([...name.split(" "), location, ...ids, ...more], { cwd });
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  expect(stderr).toMatch(/^localqueue: There is no queue in postgres:.+: it has no tables of localqueue in its schema/);
  expect(await schemaExists(location)).toBe(false);
  expect(readdirSync(cwd)).toEqual([]);
});

describe("no password is shown", () => {
  test.each<[string, string[]]>([
    ["put", ["put", "LOCATION", "1"]],
    ["put of nothing", ["put", "LOCATION"]],
    ["stats", ["stats", "LOCATION"]],
    ["stats for Prometheus", ["stats", "LOCATION", "--prometheus"]],
    ["failed list", ["failed", "list", "LOCATION", "--limit", "1"]],
    ["failed retry of nothing in particular", ["failed", "retry", "LOCATION"]],
    ["failed show of what is not there", ["failed", "show", "LOCATION", "77"]],
    ["purge", ["purge", "LOCATION", "--older-than", "0"]],
    ["vacuum", ["vacuum", "LOCATION"]],
    ["check", ["check", "LOCATION"]],
    ["backup", ["backup", "LOCATION", "./backup"]],
    ["diagnostics", ["diagnostics", "LOCATION"]],
    ["bus stats", ["bus", "stats", "LOCATION"]],
    ["bus failed list without a subscription", ["bus", "failed", "list", "LOCATION"]],
    ["an unknown command", ["LOCATION"]],
    ["one argument too many", ["stats", "./data", "LOCATION"]],
    ["work without a command", ["work", "LOCATION", "node"]],
    ["a queue of a bus", ["stats", "LOCATION", "--queue", "__bus__:app:email"]],
    ["a password that is not encoded", ["stats", "postgres://ada:#open-sesame@db.example.com/app"]],
    ["a password as a parameter", ["put", "LOCATION&password=open-sesame"]],
  ])("by %s", async (_, words) => {
    const location = withPassword();
    await using queue = new SimpleQueue<number>(location);
    await queue.putMany([1, 2]);
    for (const job of await queue.getMany(2)) await job.fail();
    const args = words.map((word) => word.replace("LOCATION", location));
    const { stdout, stderr } = await runCli(args, { cwd: tempDirectory() });
    expect(stdout + stderr).not.toBe("");
    expect(stdout + stderr).not.toContain("open-sesame");
  });
});

test("backup says what to use instead", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue(location);
  await queue.put(1);
  const { code, stderr } = await runCli(["backup", location, `${tempDirectory()}/backup`]);
  expect(code).toBe(1);
  expect(stderr).toContain("localqueue: BAD_LOCATION: ");
  expect(stderr).toContain("pg_dump");
});

test("diagnostics tell of the server what there is to tell", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue(location);
  await queue.put(1);
  const { stdout } = await runCli(["diagnostics", location]);
  expect(stdout).toMatch(/^server version {2,}\d+\.\d+/m);
  expect(stdout).toMatch(/^database schema {2,}test_/m);
  expect(stdout).toMatch(/^ready {2,}1$/m);
  expect(stdout).not.toContain("wal");
  const metrics = (await runCli(["stats", location, "--prometheus"])).stdout;
  expect(metrics).toContain('localqueue_jobs{queue="default",state="ready"} 1');
  expect(metrics).not.toContain("wal");
});

test("the demo runs there, too, unless its queue is in use", async () => {
  const location = withPassword();
  const demo = await runCli(["demo", location]);
  expect(demo).toMatchObject({ code: 0, stderr: "" });
  expect(demo.stdout).toContain("nothing is left: 4 acked, 1 failed");
  expect(demo.stdout).not.toContain("open-sesame");
  expect((await runCli(["demo", location])).stderr).toContain("has 5 jobs already. Choose another location.");
});
