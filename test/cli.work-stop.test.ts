import { once } from "node:events";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { isAlive } from "./support/alive.ts";
import { Cli } from "./support/cli.ts";
import { readRow, steal } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

/**
 * A worker at work: its command writes its process id and goes on with `script`, which can wait for `file("go")`. What
 * would run for ever must end when there is no file "running" any more: nobody else ends the command of a worker that
 * was killed, as each is that is left at the end of a test.
 */
async function startWork(
  script: string,
  options: readonly string[] = [],
): Promise<{ cli: Cli; location: string; pids: () => number[]; file: (name: string) => string }> {
  const location = tempLocation();
  const directory = tempDirectory();
  const file = (name: string): string => path.join(directory, name);
  const queue = openQueue<number>({ location });
  await queue.putMany([1, 2]);
  const program = `cd ${directory}; echo $$ >> pids; ${script}`;
  const pids = (): number[] =>
    existsSync(file("pids")) ? readFileSync(file("pids"), "utf8").trim().split("\n").map(Number) : [];
  writeFileSync(file("running"), "");
  // Before the worker is started, so that it happens after the worker was killed: it would begin the next job.
  onTestFinished(async () => {
    rmSync(file("running"));
    for (const pid of pids().filter(isAlive)) process.kill(pid, "SIGKILL");
    await until(() => !pids().some(isAlive));
  });
  const cli = new Cli(["work", location, ...options, "--", "sh", "-c", program], { detached: true });
  return { cli, location, pids, file };
}

const WAIT = "while [ -e running ] && ! [ -e go ]; do sleep 0.02; done";
const DEAF = "trap '' TERM; echo >> deaf; while [ -e running ]; do sleep 0.05; done";

describe.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("at %s", (signal) => {
  test("what runs may finish, and nothing more is begun, even if the whole process group gets it", async () => {
    const { cli, location, pids, file } = await startWork(WAIT);
    await until(() => pids().length === 1);
    process.kill(-(cli.child.pid as number), signal);
    await cli.says("Stopping: 1 job may run for 30.0 s more; a second signal kills at once.");
    writeFileSync(file("go"), "");
    const { code, stderr } = await cli.ended;
    expect(code).toBe(0);
    expect(stderr).toMatch(/localqueue: 1 acked, 0 retried, 0 failed\n$/);
    expect(readRow(location, 1)).toMatchObject({ status: 2, attempts: 1 });
    expect(readRow(location, 2)).toMatchObject({ status: 0, attempts: 0 });
  });
});

describe("at the end of the grace", () => {
  test("a command is terminated with all its children, and its delivery does not count", async () => {
    const { cli, location, pids } = await startWork("sleep 60 & echo $! >> pids; wait", ["--grace-ms", "100"]);
    await until(() => pids().length === 2);
    cli.kill("SIGTERM");
    expect(await cli.ended).toMatchObject({ code: 0, stderr: expect.stringContaining("0 acked, 0 retried, 0 failed") });
    expect(readRow(location, 1)).toMatchObject({ status: 0, attempts: 0, releases: 1, last_error: null });
    await until(() => !pids().some(isAlive));
  });

  test("one that ignores that is killed, and gives its job back as well", async () => {
    const { cli, location, pids, file } = await startWork(DEAF, ["--grace-ms", "100"]);
    await until(() => existsSync(file("deaf")));
    cli.kill("SIGTERM");
    expect(await cli.ended).toMatchObject({ code: 0 });
    expect(readRow(location, 1)).toMatchObject({ status: 0, attempts: 0, releases: 1 });
    await until(() => !pids().some(isAlive));
  });

  test.each<[string, object]>([
    ["exit 0", { status: 2, attempts: 1 }],
    ["exit 65", { status: 3, attempts: 1, failure_reason: "rejected" }],
    ["exit 75", { status: 0, attempts: 1, last_error: "exit code 75" }],
    ["exit 143", { status: 0, attempts: 0, releases: 1 }],
  ])("one that ends with %s is taken at its word", async (end, row) => {
    const script = `trap '${end}' TERM; echo > ready; while [ -e running ]; do sleep 0.02; done`;
    const { cli, location, file } = await startWork(script, ["--grace-ms", "100"]);
    await until(() => existsSync(file("ready")));
    cli.kill("SIGTERM");
    expect(await cli.ended).toMatchObject({ code: 0 });
    expect(readRow(location, 1)).toMatchObject(row);
  });
});

describe("a second signal", () => {
  test.each(["SIGINT", "SIGTERM"] as const)("%s kills at once, with exit code 1", async (second) => {
    const { cli, location, pids, file } = await startWork(DEAF);
    await until(() => existsSync(file("deaf")));
    cli.kill("SIGINT");
    await cli.says("Stopping");
    await until(() => {
      cli.kill(second);
      return cli.hasEnded;
    });
    expect(await cli.ended).toMatchObject({ code: 1 });
    await until(() => !pids().some(isAlive));
    expect(readRow(location, 1)).toMatchObject({ status: 1, attempts: 1 });
  });

  test("that comes with the first, as npx passes a Ctrl-C on, is not a second one", async () => {
    const { cli, pids, file } = await startWork(WAIT);
    await until(() => pids().length === 1);
    cli.kill("SIGINT");
    await cli.says("Stopping");
    cli.kill("SIGINT");
    cli.kill("SIGINT");
    writeFileSync(file("go"), "");
    expect(await cli.ended).toMatchObject({ code: 0, stderr: expect.stringContaining("1 acked") });
  });
});

test("a drain that is stopped before its end has failed", async () => {
  const { cli, pids, file } = await startWork(WAIT, ["--drain"]);
  await until(() => pids().length === 1);
  cli.kill("SIGTERM");
  await cli.says("Stopping");
  writeFileSync(file("go"), "");
  expect(await cli.ended).toMatchObject({ code: 1, stderr: expect.stringContaining("1 acked") });
});

describe("a command that runs for too long", () => {
  test.each([
    ["is terminated", "sleep 60"],
    ["is killed if it ignores that", DEAF],
  ])("%s, and its job comes again", async (_, script) => {
    const { cli, location, pids } = await startWork(script, ["--timeout-ms", "300", "--grace-ms", "300"]);
    await cli.says("Job 1: The handler ran longer than 300 ms; it comes again in");
    await until(() => !isAlive(pids()[0] as number));
    expect(readRow(location, 1)).toMatchObject({ attempts: 1 });
    expect(readRow(location, 1)["last_error"]).toContain("ran longer than 300 ms");
  });
});

test("a command whose lease was lost is terminated, and what it ends with does not count", async () => {
  const { cli, location, pids, file } = await startWork(
    "trap 'exit 65' TERM; echo > ready; while [ -e running ]; do sleep 0.02; done",
    ["--lease-ms", "300"],
  );
  await until(() => existsSync(file("ready")));
  steal(location, 1);
  await cli.says("Job 1: the lease was lost, so what becomes of this delivery does not count\n");
  await until(() => !isAlive(pids()[0] as number));
  expect(readRow(location, 1)).toMatchObject({ status: 1, failure_reason: null });
});

test("when a worker is killed, its job goes to another one as soon as its lease ends", async () => {
  const { cli, location, pids, file } = await startWork(WAIT, ["--lease-ms", "500"]);
  await until(() => pids().length === 1);
  cli.kill("SIGKILL");
  await once(cli.child, "exit");
  const other = new Cli(["work", location, "--drain", "--", "sh", "-c", `echo "$LOCALQUEUE_ID $LOCALQUEUE_ATTEMPT"`]);
  expect(await other.ended).toMatchObject({ code: 0, stdout: expect.stringContaining("1 2\n") });
  writeFileSync(file("go"), ""); // nobody supervises the command of the killed worker any more
  await until(() => !pids().some(isAlive));
});
