import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { lacks } from "./support/capabilities.ts";
import { Cli, runCli } from "./support/cli.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";

const { version } = JSON.parse(readFileSync("package.json", "utf8"));

const COMMANDS = [
  ...["demo", "put", "work", "stats", "failed list", "failed show", "failed retry", "failed purge"],
  ...["purge", "vacuum", "check", "backup", "diagnostics", "bus stats"],
  ...["bus failed list", "bus failed show", "bus failed retry", "bus failed purge", "bus purge"],
];

describe("help", () => {
  test.each([[[]], [["--help"]], [["-h"]], [["help"]]])("%j lists the commands, with examples", async (args) => {
    const { code, stdout, stderr } = await runCli(args);
    expect([code, stderr]).toEqual([0, ""]);
    for (const name of COMMANDS) expect(stdout).toMatch(new RegExp(`^  ${name} `, "m"));
    expect(stdout).toContain("Examples:\n  localqueue demo\n");
  });

  test.each(COMMANDS)("of %s names its options, and has examples", async (name) => {
    const { code, stdout, stderr } = await runCli([...name.split(" "), "--help"]);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(new RegExp(`^Usage: localqueue ${name} `));
    expect(stdout).toContain("  --help");
    expect(stdout).toMatch(new RegExp(`Examples:\n  localqueue ${name}`));
    expect(stdout.split("\n").filter((line) => line.length > 110)).toEqual([]);
    expect(await runCli(["help", ...name.split(" ")])).toEqual({ code, stdout, stderr });
    expect(await runCli([...name.split(" "), "./data", "-h"])).toEqual({ code, stdout, stderr });
  });

  test.each([
    ["failed", "--help"],
    ["failed", "-h"],
    ["help", "failed"],
  ])("%s %s lists what can be done", async (...args) => {
    const { code, stdout, stderr } = await runCli(args);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/^Usage: localqueue failed <command> <location>/);
    expect(stdout.match(/^ {2}failed \w+/gm)).toEqual([
      "  failed list",
      "  failed show",
      "  failed retry",
      "  failed purge",
    ]);
  });

  test.each([["bus --help"], ["help bus"], ["bus failed -h"], ["help bus failed"]])("%s lists less", async (words) => {
    const { code, stdout, stderr } = await runCli(words.split(" "));
    const group = words.includes("failed") ? "bus failed" : "bus";
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(new RegExp(`^Usage: localqueue ${group} <command> <location>`));
    const listed = Array.from(stdout.matchAll(/^ {2}(bus [a-z ]+?) {2}/gm), ([, name]) => name);
    expect(listed).toEqual(COMMANDS.filter((name) => name.startsWith(`${group} `)));
  });

  test("is not asked for by what comes after --", async () => {
    const location = tempLocation();
    const { code, stdout } = await runCli(["work", location, "--drain", "--", "echo", "--help"]);
    expect([code, stdout]).toEqual([0, ""]);
  });

  test("--version prints that of the package", async () => {
    expect(await runCli(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  });
});

describe("what is typed wrong is answered with what to type, and exit code 2:", () => {
  test.each<[string[], string]>([
    [["stat"], 'Unknown command "stat". Did you mean "stats"?'],
    [["wrok", "./data"], 'Unknown command "wrok". Did you mean "work"?'],
    [["enqueue"], 'Unknown command "enqueue". The commands are demo, put, work, stats, failed list,'],
    [["help", "stat"], 'Unknown command "stat". Did you mean "stats"?'],
    [["--quiet"], 'Unknown option "--quiet". A command comes first: localqueue <command> <location>'],
    [["stats"], "The location is missing. Usage: localqueue stats <location> [options]"],
    [["stats", ""], "The location is missing. Usage: localqueue stats <location> [options]"],
    [["put"], "The location is missing. Usage: localqueue put <location> [JSON…] [options]"],
    [["work", "--", "cat"], "The location is missing. Usage: localqueue work <location> [options] -- COMMAND [ARG…]"],
    [["stats", "./a", "./b"], '"./b" is one argument too many. Usage: localqueue stats <location> [options]'],
    [["demo", "./a", "./b"], '"./b" is one argument too many. Usage: localqueue demo [location] [options]'],
    [["stats", "./a", "--", "./b"], '"./b" is one argument too many. Usage: localqueue stats <location> [options]'],
    [["work", "./a", "b", "--", "c"], '"b" is one argument too many. Usage: localqueue work <location> [options] --'],
    [["stats", "./a", "--quue", "x"], 'Unknown option "--quue". Did you mean "--queue"?'],
    [["work", "./a", "--lease", "9", "--", "cat"], 'Unknown option "--lease". Did you mean "--lease-ms"?'],
    [["stats", "./a", "--verbose"], 'Unknown option "--verbose". localqueue stats --help lists the options.'],
    [["stats", "./a", "--constructor"], 'Unknown option "--constructor".'],
    [["put", "./a", "-5"], 'Unknown option "-5". localqueue put --help lists the options. A payload that begins with'],
    [["stats", "./a", "--queue"], "The value of --queue is missing: --queue NAME"],
    [["stats", "./a", "--json=yes"], "--json takes no value: --json"],
    [["stats", "./a", "--queue", ""], "Expected --queue to be a string of 1 to 200 characters"],
    [
      ["stats", "mysql://db"],
      "Expected <location> to be a directory (a path or a file: URL) or a postgres: URL, got a mysql: URL.",
    ],
    [["put", "./a", "1", "--delay-ms", "soon"], 'Expected --delay-ms to be an integer, got "soon".'],
    [["put", "./a", "1", "--delay-ms", "-5"], "Expected --delay-ms to be an integer from 0 to"],
    [["put", "./a", "1", "--max-retries", "-1"], "Expected --max-retries to be an integer from 0 to"],
    [["put", "./a", "1", "--job-id", ""], "Expected --job-id to be a string of 1 to 512 bytes"],
    [["work", "./a", "--lease-ms", "5", "--", "cat"], "Expected --lease-ms to be an integer from 10 to 86400000, got"],
    [["work", "./a", "--concurrency", "0", "--", "cat"], "Expected --concurrency to be an integer from 1 to 10000"],
    [["work", "./a", "--grace-ms", "1.5", "--", "cat"], 'Expected --grace-ms to be an integer, got "1.5".'],
  ])("%j", async (args, answer) => {
    const cwd = tempDirectory();
    const { code, stdout, stderr } = await runCli(args, { cwd });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr.startsWith(`localqueue: ${answer}`), stderr).toBe(true);
    expect(stderr.trimEnd().split("\n").length).toBe(1);
    expect(existsSync(path.join(cwd, "a"))).toBe(false);
  });

  test.each<[string[], string]>([
    [[], "localqueue work <location> -- COMMAND [ARG…]"],
    [["./data"], "localqueue work ./data -- COMMAND [ARG…]"],
    [["./data", "node", "send.mjs", "--fast"], "localqueue work ./data -- node send.mjs --fast"],
    [["./my data", "--drain", "sh", "-c", "it's"], "localqueue work './my data' --drain -- sh -c 'it'\\''s'"],
  ])("work %j, where the -- is missing", async (args, line) => {
    const { code, stderr } = await runCli(["work", ...args]);
    expect(code).toBe(2);
    expect(stderr).toBe(`localqueue: Put -- before the command to run: ${line}\n`);
  });
});

describe("what the storage cannot do is one sentence with its code, and exit code 1:", () => {
  test.skipIf(lacks("files"))("a location that is a file", async () => {
    const location = path.join(tempDirectory(), "file");
    writeFileSync(location, "");
    const { code, stdout, stderr } = await runCli(["put", location, '{"secret":1}']);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(/^localqueue: BAD_LOCATION: .+\n$/);
    expect(stderr).not.toMatch(/secret|\bat /);
  });

  test.skipIf(lacks("files")).each([
    ["stats", []],
    ["put", ['"secret"']],
    ["work", ["--", "cat"]],
  ])("a file that is no database (%s)", async (command, args) => {
    const location = tempLocation();
    writeFileSync(path.join(location, "localqueue.db"), "something else entirely".repeat(100));
    const { code, stderr } = await runCli([command, location, ...args]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^localqueue: NOT_A_DATABASE: .+\.$/m);
    expect(stderr).not.toMatch(/secret|\bat /);
  });
});

describe("stats", () => {
  test("aligns the counts, with thousands separators", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, name: "emails" });
    await queue.putMany(Array.from({ length: 1_234 }, (_, n) => n));
    await (await queue.get()).ack();
    await (await queue.get()).fail();
    await queue.get();
    expect(await runCli(["stats", location, "--queue", "emails"])).toEqual({
      code: 0,
      stdout: `Queue "emails" of ${location}\nready       1,231\nprocessing      1\nacked           1\nfailed          1\n`,
      stderr: "",
    });
    const json = await runCli(["stats", "--json", "--queue=emails", location]);
    expect(json).toEqual({
      code: 0,
      stdout: '{"ready":1231,"processing":1,"acked":1,"failed":1}\n',
      stderr: "",
    });
  });

  test.skipIf(lacks("files"))("takes a file: URL", async () => {
    const location = tempDirectory();
    await openQueue({ location }).stats();
    const url = new URL(`file://${location}`).href;
    expect((await runCli(["stats", url, "--json"])).stdout).toBe('{"ready":0,"processing":0,"acked":0,"failed":0}\n');
  });

  test.each([false, true])("of a place without a queue creates nothing (is there a directory: %s)", async (exists) => {
    const cwd = tempDirectory();
    if (exists) mkdirSync(path.join(cwd, "data"));
    expect(await runCli(["stats", "./data"], { cwd })).toEqual({
      code: 1,
      stdout: "",
      stderr: "localqueue: There is no queue in ./data: it has no localqueue.db.\n",
    });
    expect(existsSync(path.join(cwd, "data"))).toBe(exists);
    expect(existsSync(path.join(cwd, "data", "localqueue.db"))).toBe(false);
  });

  test("does not mind that nobody reads it to the end", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const cli = new Cli(["stats", location]);
    cli.child.stdout.destroy();
    expect(await cli.ended).toEqual({ code: 0, stdout: "", stderr: "" });
  });
});
