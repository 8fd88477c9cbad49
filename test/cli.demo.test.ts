import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { isAlive } from "./support/alive.ts";
import { Cli, runCli } from "./support/cli.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const STORY = [
  /5 jobs are put into /,
  /worker A is in the middle of job \d+ \(invoice\)/,
  /kill -9 \d+/,
  /worker B had no luck with job \d+ \(receipt\): no connection; it comes again/,
  /worker B rejects job \d+ \(welcome\): no such address; it is a dead letter/,
  /worker B begins job \d+ \(invoice\), delivery 2/,
  /nothing is left: 4 acked, 1 failed/,
  /Try next:\n {2}localqueue /,
];

describe("the demo", () => {
  test("tells its story in less than ten seconds, and leaves nothing behind", async () => {
    const TMPDIR = tempDirectory();
    const startedAt = performance.now();
    const { code, stdout, stderr } = await runCli(["demo"], { env: { TMPDIR } });
    expect([code, stderr]).toEqual([0, ""]);
    for (const line of STORY) expect(stdout).toMatch(line);
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    expect(readdirSync(TMPDIR)).toEqual([]);
  });

  test("keeps a directory that it was given, and the other queues in it", async () => {
    const directory = tempDirectory();
    await openQueue({ location: directory }).put(1);
    const { code, stdout } = await runCli(["demo", directory]);
    expect(code).toBe(0);
    expect(stdout).toContain(`localqueue stats ${directory} --queue demo\n`);
    const rows = select(directory, "SELECT queue, status, attempts FROM messages ORDER BY id");
    expect(rows.map((row) => Object.values(row).join(" "))).toEqual([
      "default 0 0",
      "demo 2 1",
      "demo 2 2",
      "demo 2 2",
      "demo 3 1",
      "demo 2 1",
    ]);
    expect(faultsOf(directory)).toEqual([]);

    expect(await runCli(["demo", directory])).toEqual({
      code: 1,
      stdout: "",
      stderr: `localqueue: The queue "demo" of ${directory} has 5 jobs already. Choose another location.\n`,
    });
  });

  test("fails if it does not add up", async () => {
    const directory = tempDirectory();
    const cli = new Cli(["demo", directory]);
    await until(() => cli.stdout.includes("worker A starts") && existsSync(path.join(directory, "localqueue.db")));
    await openQueue({ location: directory, name: "demo" }).put({ task: "of somebody else", to: "x" });
    const { code, stderr } = await cli.ended;
    expect(code).toBe(1);
    expect(stderr).toMatch(/^localqueue: This does not add up: /);
  });

  test.each(["SIGINT", "SIGTERM"] as const)("at %s ends at once, and leaves nothing behind", async (signal) => {
    const TMPDIR = tempDirectory();
    const cli = new Cli(["demo"], { env: { TMPDIR } });
    await until(() => cli.stdout.includes("worker A starts"));
    const pid = Number(/worker A starts, process (\d+)/.exec(cli.stdout)?.[1]);
    cli.kill(signal);
    expect(await cli.ended).toMatchObject({ code: 1 });
    expect(readdirSync(TMPDIR)).toEqual([]);
    await until(() => !isAlive(pid));
  });
});
