import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { Cli, runCli } from "./support/cli.ts";
import { openDatabase } from "./support/database.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { atTerminal, TYPED } from "./support/terminal.ts";
import { until } from "./support/until.ts";

/** A queue with one job that is ready, two that were done and one dead letter, those three an hour ago. */
async function usedQueue(name = "default"): Promise<string> {
  const directory = tempDirectory();
  const queue = openQueue<string>({ location: directory, name });
  await queue.putMany(["a", "b", "c", "d"]);
  const [first, second, third] = await queue.getMany(3);
  await Promise.all([first?.ack(), second?.ack(), third?.fail()]);
  await queue.close();
  const database = openDatabase(directory);
  database.exec("UPDATE messages SET updated_at = updated_at - 3600000 WHERE status IN (2, 3)");
  database.close();
  return directory;
}

async function countsOf(directory: string, queue = "default"): Promise<unknown> {
  return JSON.parse((await runCli(["stats", directory, "--queue", queue, "--json"])).stdout);
}

describe("purge", () => {
  test.each<[string[], number, object]>([
    [["--older-than", "2h"], 0, { acked: 2, failed: 1 }],
    [["--older-than", "59.5m"], 2, { acked: 0, failed: 1 }],
    [["--older-than", "3000s", "--include-failed"], 3, { acked: 0, failed: 0 }],
    [["--older-than", "1w", "--include-failed"], 0, { acked: 2, failed: 1 }],
    [["--older-than", "0"], 2, { acked: 0, failed: 1 }],
  ])("%j", async (args, purged, left) => {
    const directory = await usedQueue();
    const { code, stdout, stderr } = await runCli(["purge", directory, ...args, "--json"]);
    expect([code, stdout, stderr]).toEqual([0, `{"purged":${purged}}\n`, ""]);
    expect(await countsOf(directory)).toEqual({ ready: 1, processing: 0, ...left });
  });

  test("is of one queue", async () => {
    const directory = await usedQueue("emails");
    expect((await runCli(["purge", directory, "--older-than", "1s"])).stdout).toBe(
      `0 jobs deleted: Queue "default" of ${directory}\n`,
    );
    expect((await runCli(["purge", directory, "--older-than", "1s", "--queue", "emails"])).stdout).toBe(
      `2 jobs deleted: Queue "emails" of ${directory}\n`,
    );
  });
});

describe("vacuum", () => {
  test("makes the file smaller", async () => {
    const directory = tempDirectory();
    const queue = openQueue<string>({ location: directory });
    await queue.putMany(Array.from({ length: 200 }, () => "x".repeat(10_000)));
    for (const job of await queue.getMany(200)) await job.ack();
    await queue.close();
    const size = (): number => statSync(path.join(directory, "localqueue.db")).size;
    const before = size();
    await runCli(["purge", directory, "--older-than", "0"]);
    const { code, stdout, stderr } = await runCli(["vacuum", directory]);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/ has been vacuumed in \d+\.\d s\n$/);
    expect(size()).toBeLessThan(before / 4);
    expect(JSON.parse((await runCli(["vacuum", directory, "--json"])).stdout)).toEqual({
      elapsedMs: expect.any(Number),
    });
  });
});

test("vacuum is refused while a job is being processed", async () => {
  const directory = tempDirectory();
  const queue = openQueue({ location: directory });
  await queue.put(1);
  await queue.get();
  const { code, stdout, stderr } = await runCli(["vacuum", directory]);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toMatch(/^localqueue: BUSY: .+\.\n$/);
});

describe("check", () => {
  test.each([[[]], [["--quick"]]])("finds a file intact %j", async (args) => {
    const directory = await usedQueue();
    const mode = args.length > 0 ? "quick" : "full";
    const { code, stdout, stderr } = await runCli(["check", directory, ...args]);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(new RegExp(` is intact \\(${mode} check, \\d+\\.\\d s\\)\n$`));
    const json = await runCli(["check", directory, ...args, "--json", "--max-errors", "7"]);
    expect(JSON.parse(json.stdout)).toMatchObject({ mode, maxErrors: 7, ok: true, messages: ["ok"] });
  });

  test("finds a damaged file, with exit code 1", async () => {
    const directory = await usedQueue();
    const database = openDatabase(directory);
    database.exec("PRAGMA foreign_keys = OFF; INSERT INTO event_bus_delivery_edges VALUES (98, 99), (97, 99)"); // no such jobs
    database.close();
    const { code, stdout } = await runCli(["check", directory]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^.*\w.*\n(.*\n)*.* is damaged \(full check, \d+\.\d s\)\n$/);
    const json = await runCli(["check", directory, "--max-errors", "1", "--json"]);
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout)).toMatchObject({ ok: false, messages: [expect.any(String)] });
  });
});

describe("backup", () => {
  test("makes a new directory that is a location", async () => {
    const directory = await usedQueue("emails");
    const cwd = tempDirectory();
    const { code, stdout, stderr } = await runCli(["backup", directory, "./monday"], { cwd });
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/ is in \.\/monday: \d+\.\d kB, verified, \d+\.\d s\n$/);
    expect(await countsOf(path.join(cwd, "monday"), "emails")).toEqual({
      ready: 1,
      processing: 0,
      acked: 2,
      failed: 1,
    });
    const json = await runCli(["backup", directory, "./tuesday", "--json"], { cwd });
    expect(JSON.parse(json.stdout)).toMatchObject({ destination: "./tuesday", verified: true });
  });

  test("refuses a directory that exists, and leaves it alone", async () => {
    const directory = await usedQueue();
    const cwd = tempDirectory();
    mkdirSync(path.join(cwd, "monday"));
    writeFileSync(path.join(cwd, "monday", "file"), "mine");
    const { code, stdout, stderr } = await runCli(["backup", directory, "./monday"], { cwd });
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(/^localqueue: .+\.\n$/);
    expect(stderr).not.toMatch(/\n +at /);
    expect(readFileSync(path.join(cwd, "monday", "file"), "utf8")).toBe("mine");
  });

  test("shows how far it is on a terminal; a signal ends it, and nothing is left behind", async () => {
    const directory = await usedQueue();
    const database = openDatabase(directory);
    database.exec("UPDATE messages SET payload = randomblob(50000000)"); // of each of the four
    database.close();
    const cwd = tempDirectory();
    const shown = await atTerminal(`cd "${cwd}" && ${TYPED} backup "${directory}" whole`);
    expect(shown).toMatch(/\r␛\[KBacking up: copying \d+%, \d\.\d s\r␛\[K/);
    const cli = new Cli(["backup", directory, "./partial"], { cwd });
    await until(() => existsSync(path.join(cwd, "partial")));
    cli.kill("SIGINT");
    expect(await cli.ended).toEqual({ code: 1, stdout: "", stderr: "localqueue: Interrupted.\n" });
    expect(readdirSync(cwd)).toEqual(["whole"]);
  });
});

describe("diagnostics", () => {
  test("are a table that fits in 80 columns, and JSON for programs", async () => {
    const directory = await usedQueue("emails");
    const { code, stdout, stderr } = await runCli(["diagnostics", directory, "--queue", "emails"]);
    expect([code, stderr]).toEqual([0, ""]);
    const [title, ...rows] = stdout.trimEnd().split("\n");
    expect(title).toBe(`Queue "emails" of ${directory}`);
    expect(rows).toContainEqual(expect.stringMatching(/^ready +1$/));
    expect(rows).toContainEqual(expect.stringMatching(/^acked +2$/));
    expect(rows).toContainEqual(expect.stringMatching(/^database size +\d+\.\d kB$/));
    for (const row of rows) {
      expect(row.length).toBeLessThanOrEqual(80);
      expect(row).not.toMatch(/undefined|NaN|\[object/);
    }
    const json = await runCli(["diagnostics", directory, "--queue", "emails", "--json"]);
    expect(JSON.parse(json.stdout)).toMatchObject({ ready: 1, processing: 0, acked: 2, failed: 1 });
  });
});

const REPORTS: readonly string[][] = [
  ["purge", "./a", "--older-than", "1d"],
  ["vacuum", "./a"],
  ["check", "./a"],
  ["backup", "./a", "./b"],
  ["diagnostics", "./a"],
];

test.each(REPORTS)("%s of a place without a queue creates nothing", async (...args) => {
  const cwd = tempDirectory();
  expect(await runCli(args, { cwd })).toEqual({
    code: 1,
    stdout: "",
    stderr: "localqueue: There is no queue in ./a: it has no localqueue.db.\n",
  });
  expect([existsSync(path.join(cwd, "a")), existsSync(path.join(cwd, "b"))]).toEqual([false, false]);
});

test.each(REPORTS)("%s does not mind that nobody reads it", async (command = "", _, ...more) => {
  const directory = await usedQueue();
  const cli = new Cli([command, directory, ...more], { cwd: tempDirectory() });
  cli.child.stdout.destroy();
  expect(await cli.ended).toEqual({ code: 0, stdout: "", stderr: "" });
});

test.each(REPORTS)("%s leaves nothing but its report on a terminal", async (command = "", _, ...more) => {
  const directory = await usedQueue();
  const cwd = tempDirectory();
  const shown = await atTerminal(`cd "${cwd}" && ${TYPED} ${[command, directory, ...more].join(" ")}`);
  const [report = "", ...progress] = shown.split("\r␛[K").reverse();
  expect(report).toMatch(/\w.*\n$/);
  expect(report.replace(/␛\[(1|22)m/g, "")).not.toContain("␛");
  for (const line of progress) expect(line).toMatch(/^([A-Z][a-z ]+: ([a-z]+ \d+%, )?\d+\.\d s)?$/);
});

describe("what is typed wrong is answered with what to type, and exit code 2:", () => {
  test.each<[string[], string]>([
    [["purge", "./a"], "Say how old the jobs must be: localqueue purge ./a --older-than 30d"],
    [["purge", "./a", "--older-than"], "The value of --older-than is missing: --older-than TIME"],
    [
      ["purge", "./a", "--older-than", "yesterday"],
      'Expected --older-than to be a duration like 90s, 15m, 12h, 30d or 2w, got "yesterday".',
    ],
    [["purge", "./a", "--older-than", "-5d"], "Expected --older-than to be a duration like 90s"],
    [["purge", "./a", "--older-than", "30 days"], "Expected --older-than to be a duration like 90s"],
    [["purge", "./a", "--older", "30d"], 'Unknown option "--older". Did you mean "--older-than"?'],
    [["purge", "./a", "30d"], '"30d" is one argument too many. Usage: localqueue purge <location> [options]'],
    [["vacuum"], "The location is missing. Usage: localqueue vacuum <location> [options]"],
    [["check", "./a", "--max-errors", "0"], "Expected --max-errors to be an integer from 1 to 1000"],
    [["check", "./a", "--max-errors", "many"], 'Expected --max-errors to be an integer, got "many".'],
    [["check", "./a", "--mode", "quick"], 'Unknown option "--mode". localqueue check --help lists the options.'],
    [["backup", "./a"], "Say where to: localqueue backup ./a ./backups/monday"],
    [["backup", "./a", ""], "Say where to: localqueue backup ./a ./backups/monday"],
    [["backup", "./a", "./b", "./c"], '"./c" is one argument too many.'],
    [["diagnostics", "./a", "./b"], '"./b" is one argument too many.'],
    [["diagnostic", "./a"], 'Unknown command "diagnostic". Did you mean "diagnostics"?'],
  ])("%j", async (args, answer) => {
    const cwd = tempDirectory();
    const { code, stdout, stderr } = await runCli(args, { cwd });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr.startsWith(`localqueue: ${answer}`), stderr).toBe(true);
    expect(existsSync(path.join(cwd, "a"))).toBe(false);
  });

  test("purge of an age before there were computers", async () => {
    const directory = await usedQueue();
    const { code, stderr } = await runCli(["purge", directory, "--older-than", "9999w"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^localqueue: Expected --older-than to be an integer from 0 to .*\.\n$/);
  });
});
