import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { lacks } from "./support/capabilities.ts";
import { Cli, type CliResult, runCli } from "./support/cli.ts";
import { readRow, refuse } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

function drain(location: string, ...command: string[]): Promise<CliResult> {
  return runCli(["work", location, "--drain", "--", ...command]);
}

function shell(location: string, script: string, ...options: string[]): Promise<CliResult> {
  return runCli(["work", location, "--drain", ...options, "--", "sh", "-c", script]);
}

describe("the command of a job", () => {
  test("finds the very text of the payload on its standard input", async () => {
    const location = tempLocation();
    const texts = ['{"n":12345678901234567890,"e":1.0}', '"ü"', '{ "b" : 1, "a" : 2 }', `"${"x".repeat(500_000)}"`];
    await runCli(["put", location], { input: texts.join("\n") });
    const { code, stdout, stderr } = await shell(location, "cat; echo");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "localqueue: 4 acked, 0 retried, 0 failed\n" });
    expect(stdout.split("\n")).toEqual([...texts, ""]);
  });

  test("need not read it", async () => {
    const location = tempLocation();
    await openQueue({ location }).put("x".repeat(5_000_000));
    expect(await drain(location, "true")).toMatchObject({ code: 0, stderr: expect.stringContaining("1 acked") });
  });

  test("finds in its environment which job it is for", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, name: "emails" });
    await queue.put(1, { jobId: "welcome 42" });
    await queue.put(2);
    const show = `console.log(JSON.stringify(Object.entries(process.env).filter(([k]) => k.startsWith("LOCALQUEUE_"))))`;
    const args = ["work", location, "--queue", "emails", "--drain", "--", process.execPath, "-e", show];
    const { stdout } = await runCli(args, { env: { LOCALQUEUE_JOB_ID: "of the job that runs the worker", KEPT: "1" } });
    const [first, second] = stdout.split("\n").map((line) => line && Object.fromEntries(JSON.parse(line)));
    const common = { LOCALQUEUE_ATTEMPT: "1", LOCALQUEUE_QUEUE: "emails" };
    expect(first).toEqual({ ...common, LOCALQUEUE_ID: "1", LOCALQUEUE_JOB_ID: "welcome 42" });
    expect(second).toEqual({ ...common, LOCALQUEUE_ID: "2" });
  });

  test("gets its arguments as they are: no shell is involved", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const args = ["$(touch made-by-a-shell); echo", "a  b", "--json", "*", "--"];
    const program = `console.log(JSON.stringify(process.argv.slice(1)))`;
    const { stdout } = await drain(location, process.execPath, "-e", program, "--", ...args);
    expect(JSON.parse(stdout)).toEqual(args);
    expect(existsSync("made-by-a-shell")).toBe(false);
  });

  test("that cannot be found claims no job", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    const { id } = await queue.put(1);
    for (const program of ["no-such-command", "./no-such-file", location, "/etc/passwd"]) {
      expect(await runCli(["work", location, "--drain", "--", program])).toEqual({
        code: 2,
        stdout: "",
        stderr: `localqueue: There is no command "${program}" that can be run.\n`,
      });
    }
    expect(readRow(location, id)).toMatchObject({ status: 0, attempts: 0 });
  });

  test("that cannot be started any more has the job delivered again", async () => {
    const location = tempLocation();
    await openQueue<number>({ location, maxRetries: 0 }).putMany([1, 2]);
    const program = path.join(tempDirectory(), "for-one-job");
    writeFileSync(program, '#!/bin/sh\nrm "$0"\n', { mode: 0o700 });
    const { code, stderr } = await drain(location, program);
    expect(code).toBe(0);
    expect(stderr).toBe(
      `localqueue: Job 2: could not be started (ENOENT); it is a dead letter (retries_exhausted)
localqueue: 1 acked, 0 retried, 1 failed
`,
    );
    expect(readRow(location, 2)["last_error"]).toBe("could not be started (ENOENT)");
  });
});

describe("what the command ends with decides what becomes of the job:", () => {
  test.each<[string, string, object, string]>([
    ["exit 0", "0 retried, 0 failed", { status: 2, last_error: null }, ""],
    [
      "exit 65",
      "0 acked, 0 retried, 1 failed",
      { status: 3, failure_reason: "rejected", failure_category: "exit-65", last_error: "Reject: exit code 65" },
      "Job 1: exit code 65; it is a dead letter (rejected)\n",
    ],
    ["exit 75", "0 acked, 1 retried, 0 failed", { status: 0, last_error: "exit code 75" }, "Job 1: exit code 75; it"],
    ["exit 3", "0 acked, 1 retried, 0 failed", { status: 0, last_error: "exit code 3" }, "Job 1: exit code 3; it"],
    ["kill -9 $$", "1 retried, 0 failed", { last_error: "killed by SIGKILL" }, "Job 1: killed by SIGKILL; it comes"],
  ])("%s", async (script, summary, row, told) => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.put({ secret: 1 });
    const cli = new Cli(["work", location, "--", "sh", "-c", script]);
    await until(async () => readRow(location, 1)["attempts"] === 1 && (await queue.stats()).processing === 0);
    await until(() => cli.stderr.includes(told));
    cli.kill("SIGTERM");
    const { code, stdout, stderr } = await cli.ended;
    expect([code, stdout]).toEqual([0, ""]);
    expect(stderr).toContain(told);
    expect(stderr).toContain(summary);
    expect(stderr).not.toContain("secret");
    expect(readRow(location, 1)).toMatchObject(row);
  });

  test("a retry waits as with any worker, and its attempt counts on", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const { stdout, stderr } = await shell(location, `echo "$LOCALQUEUE_ATTEMPT"; exit $((2 - LOCALQUEUE_ATTEMPT))`);
    expect(stdout).toBe("1\n2\n");
    expect(stderr).toMatch(/^localqueue: Job 1: exit code 1; it comes again in (1\.\d|2\.0) s\n/);
    expect(stderr).toMatch(/localqueue: 1 acked, 1 retried, 0 failed\n$/);
  });

  test("a dead letter is told, and counted in the report for programs", async () => {
    const location = tempLocation();
    await openQueue<number>({ location, maxRetries: 0 }).putMany([1, 2, 3]);
    const { code, stdout, stderr } = await shell(location, `exit $((LOCALQUEUE_ID - 1))`, "--json");
    expect([code, stdout]).toEqual([0, '{"acked":1,"retried":0,"failed":2}\n']);
    expect(stderr).toBe(
      `localqueue: Job 2: exit code 1; it is a dead letter (retries_exhausted)
localqueue: Job 3: exit code 2; it is a dead letter (retries_exhausted)
`,
    );
  });
});

test("as many commands run at a time as asked for", async () => {
  const location = tempLocation();
  await openQueue<number>({ location }).putMany([1, 2, 3, 4, 5, 6]);
  const log = path.join(tempDirectory(), "log");
  // Each waits until three have begun; if there were not three at a time, as long as the worker is there.
  const script = `echo >> ${log}; while [ $(wc -l < ${log}) -lt 3 ] && kill -0 $PPID; do sleep 0.05; done`;
  const { code, stderr } = await shell(location, script, "--concurrency", "3");
  expect([code, stderr]).toEqual([0, "localqueue: 6 acked, 0 retried, 0 failed\n"]);
});

describe("--drain", () => {
  test("ends at once if there is nothing to do", async () => {
    expect(await drain(tempLocation(), "cat")).toMatchObject({ code: 0 });
  });

  test("waits for jobs that are delayed", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1, { delayMs: 1_500 });
    expect((await drain(location, "cat")).stdout).toBe("1");
  });

  test("waits for jobs that others have", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location });
    await queue.put(1);
    const ours = await queue.get();
    await queue.put(2);
    const cli = new Cli(["work", location, "--drain", "--", "cat"]);
    await until(async () => (await queue.stats()).acked === 1);
    const lookedAt = performance.now();
    await until(() => performance.now() > lookedAt + 600 || cli.hasEnded); // it has looked again
    expect(cli.hasEnded).toBe(false);
    await ours.ack();
    expect(await cli.ended).toMatchObject({ code: 0, stdout: "2" });
  });

  test("goes on until no retry is left", async () => {
    const location = tempLocation();
    await openQueue({ location, maxRetries: 1 }).put(1);
    const { code, stderr } = await shell(location, "exit 1");
    expect(code).toBe(0);
    expect(stderr).toContain("localqueue: 0 acked, 1 retried, 1 failed\n");
  });
});

describe("when the storage has a problem", () => {
  test("that passes, work tells it once and goes on", async () => {
    const location = tempLocation();
    const queue = openQueue<number>({ location });
    await queue.put(1);
    const mend = refuse(location, 1);
    const cli = new Cli(["work", location, "--drain", "--", "cat"]);
    await cli.says("Waiting for this to pass.");
    const toldAt = performance.now();
    await until(() => performance.now() > toldAt + 1_500); // it has tried again by then, more than once
    mend();
    const { code, stdout, stderr } = await cli.ended;
    expect([code, stdout]).toEqual([0, "1"]);
    expect(stderr).toMatch(
      /^localqueue: IO: .+\. Waiting for this to pass\.\nlocalqueue: 1 acked, 0 retried, 0 failed\n$/,
    );
  });

  test.skipIf(lacks("files"))("that does not, work ends with exit code 1", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const cli = new Cli(["work", location, "--", "cat"]);
    await until(() => cli.stdout === "1");
    renameSync(path.join(location, "localqueue.db"), path.join(location, "moved.db"));
    writeFileSync(path.join(location, "localqueue.db"), "");
    const { code, stderr } = await cli.ended;
    expect(code).toBe(1);
    expect(stderr).toMatch(/localqueue: FILE_REPLACED: .+\.\n$/);
    expect(stderr).not.toMatch(/\n +at /);
    expect(readFileSync(path.join(location, "localqueue.db")).length).toBe(0);
  });
});
