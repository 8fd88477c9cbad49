import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { graph, StatsHistory } from "../dist/cli/stats-history.js";
import { lacks } from "./support/capabilities.ts";
import { Cli, runCli, typed } from "./support/cli.ts";
import { addFinished } from "./support/finished-jobs.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { atTerminal, Terminal, TYPED } from "./support/terminal.ts";
import { until } from "./support/until.ts";

/** A queue with so many done jobs that somebody should be told. */
async function outgrownQueue(): Promise<string> {
  const location = tempLocation();
  const queue = openQueue<number>({ location, name: "my emails" });
  await queue.stats();
  await queue.close();
  addFinished(location, { queue: "my emails", rows: 100_000 });
  return location;
}

const lines = (text: string): string[] => text.trimEnd().split("\n");

describe("stats --watch", () => {
  test("tells rates with each tick, one line of JSON for each, and ends at SIGINT with exit code 0", async () => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.put(1);
    const cli = new Cli(["stats", location, "--watch", "--interval", "100", "--json"]);
    await until(() => cli.stdout !== "");
    await queue.putMany([2, 3]);
    await (await queue.get()).ack();
    await until(() => cli.stdout.includes('"acked":1'));
    cli.kill("SIGINT");
    const { code, stdout, stderr } = await cli.ended;
    expect([code, stderr]).toEqual([0, ""]);
    const ticks = lines(stdout).map((line) => JSON.parse(line));
    expect(ticks[0]).toEqual({
      at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      ready: 1,
      processing: 0,
      acked: 0,
      failed: 0,
      putsPerSecond: null,
      acksPerSecond: null,
    });
    expect(ticks.at(-1)).toMatchObject({ ready: 2, acked: 1 });
    expect(ticks.some(({ putsPerSecond }) => putsPerSecond > 0)).toBe(true);
    expect(ticks.some(({ acksPerSecond }) => acksPerSecond > 0)).toBe(true);
  });

  test("prints a line for each tick where nothing can be redrawn, without a control character", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const cli = new Cli(["stats", location, "--watch", "--interval", "100"]);
    await until(() => lines(cli.stdout).length > 2);
    cli.kill("SIGTERM");
    const { code, stdout } = await cli.ended;
    expect(code).toBe(0);
    const [first, second] = lines(stdout);
    expect(first).toMatch(/^\S+Z {2}ready 1 {2}processing 0 {2}acked 0 {2}failed 0 {2}puts\/s - {2}acks\/s -$/);
    expect(second).toMatch(/puts\/s 0\.0 {2}acks\/s 0\.0$/);
  });

  test("ends when nobody reads it any more", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const cli = new Cli(["stats", location, "--watch", "--interval", "100"]);
    await until(() => cli.stdout !== "");
    cli.child.stdout.destroy();
    expect(await cli.ended).toMatchObject({ code: 0, stderr: "" });
  });

  test("of a place without a queue creates nothing", async () => {
    const cwd = tempDirectory();
    expect(await runCli(["stats", "./data", "--watch"], { cwd })).toMatchObject({ code: 1, stdout: "" });
    expect(existsSync(path.join(cwd, "data"))).toBe(false);
  });

  test("redraws in place on a terminal, follows its size, and leaves it as it was at Ctrl-C", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, name: "emails" });
    await queue.putMany([1, 2, 3]);
    const terminal = new Terminal(`${TYPED} stats '${location}' --watch --interval 100 --queue emails; echo "code $?"`);
    await terminal.shows("acks/s");
    await (await queue.get()).fail();
    await terminal.shows("␛[31m    1␛[39m");
    await terminal.resize(60, 6);
    await until(() => frames(terminal.shown).at(-1)?.split("\r\n").length === 6);
    await terminal.resize(20, 24);
    await until(() => frames(terminal.shown).at(-1)?.split("\r\n").length === 9);
    terminal.press("\x03");
    const shown = await terminal.ended;
    expect(shown.split("␛[?1049h␛[?25l␛[?7l").length).toBe(2);
    const [view = "", rest = ""] = shown.split("␛[?7h␛[?25h␛[?1049l");
    expect(view).toMatch(/␛\[H.*Queue "emails" of .*␛\[K\r/);
    expect(view).toMatch(/ready {11}3 {2}␛\[36m█+/);
    expect(rest).toMatch(/^.*Queue "emails" of .*\n.*\n\nready +2 {2}.*[▁▂▃▄▅▆▇█]+.*\n[\s\S]*code 0\n$/);
    expect(rest).not.toMatch(/␛\[[HJK]/);
  });

  test("comes back after Ctrl-Z", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const line = `${TYPED} stats "${location}" --watch --interval 100`;
    const terminal = new Terminal(`bash -mc '${line}; echo stopped; fg'`);
    await terminal.shows("acks/s");
    terminal.press("\x1a");
    await terminal.shows("stopped");
    await until(() => terminal.shown.split("␛[?1049h").length === 3);
    terminal.press("\x03");
    expect((await terminal.ended).split("␛[?1049l").length).toBe(3);
  });

  test("shows no colour with NO_COLOR", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const line = `timeout -s INT 1 ${TYPED} stats '${location}' --watch --interval 100`;
    const shown = await atTerminal(line, { NO_COLOR: "1" });
    expect(shown).toContain("█");
    expect(shown).not.toMatch(/␛\[\d*m/);
  });
});

/** What was drawn each time. */
function frames(shown: string): string[] {
  return shown
    .split("␛[H")
    .slice(1)
    .filter((frame) => frame.includes("␛[J"));
}

describe("rates and graphs", () => {
  const counts = { ready: 10, processing: 0, acked: 0, failed: 0 };

  test("are of the time that has passed, and never below 0", () => {
    const history = new StatsHistory();
    const at = new Date();
    expect(history.add(counts, at, 1_000)).toMatchObject({ putsPerSecond: null, acksPerSecond: null });
    expect(history.add({ ...counts, ready: 8, acked: 5 }, at, 3_000)).toMatchObject({
      putsPerSecond: 1.5,
      acksPerSecond: 2.5,
    });
    expect(history.add({ ...counts, ready: 8, acked: 0 }, at, 4_000)).toMatchObject({
      putsPerSecond: 0,
      acksPerSecond: 0,
    });
    expect(history.values((tick) => tick.acksPerSecond, 2)).toEqual([2.5, 0]);
    expect(history.values((tick) => tick.ready, -1)).toEqual([]);
  });

  test("show the highest value as the highest block, and a little as more than nothing", () => {
    expect(graph([0, 1, 500, 1_000])).toBe("▁▂▅█");
    expect(graph([0, 0])).toBe("▁▁");
    expect(graph([])).toBe("");
  });
});

describe("done jobs that outgrow the work", () => {
  test("are told, with what to type", async () => {
    const location = await outgrownQueue();
    const warning = `localqueue: 100,000 acked jobs are kept, 0 jobs to do. To remove old ones: localqueue purge ${typed(location)} --queue 'my emails' --older-than 30d\n`;
    const args = ["stats", location, "--queue", "my emails"];
    expect((await runCli(args)).stderr).toBe(warning);
    const json = await runCli([...args, "--json"]);
    expect(json).toEqual({
      code: 0,
      stdout: '{"ready":0,"processing":0,"acked":100000,"failed":0}\n',
      stderr: warning,
    });
    const cli = new Cli([...args, "--watch", "--interval", "100"]);
    await until(() => lines(cli.stdout).length > 2);
    cli.kill("SIGINT");
    expect(await cli.ended).toMatchObject({ code: 0, stderr: warning });
    const shown = await atTerminal(`timeout -s INT 1 ${TYPED} stats '${location}' --queue 'my emails' --watch`);
    expect(shown).toContain("␛[33m100,000 acked jobs are kept");
    const work = openQueue<number>({ location, name: "my emails" });
    await work.putMany(Array.from({ length: 10_000 }, (_, n) => n));
    expect((await runCli(args)).stderr).toBe("");
  });
});

describe("stats --prometheus", () => {
  test("has the metrics that are documented", async () => {
    const location = tempLocation();
    const queue = openQueue({ location, leaseMs: 10 });
    await queue.putMany([1, 2]);
    await queue.get();
    await until(async () => {
      const { stdout } = await runCli(["stats", location, "--prometheus"]);
      return stdout.includes('localqueue_leases{queue="default",state="expired"} 1\n');
    });
    const { stdout } = await runCli(["stats", location, "--prometheus"]);
    const table = readFileSync("docs/cli.md", "utf8").matchAll(/^\| `(localqueue_\w+)` \|/gm);
    const ofFiles = ["localqueue_free_bytes", "localqueue_wal_bytes"];
    const documented = Array.from(table, ([, name]) => name).filter(
      (name) => !(lacks("files") && ofFiles.includes(`${name}`)),
    );
    expect(Array.from(stdout.matchAll(/^# HELP (\w+) ./gm), ([, name]) => name)).toEqual(documented);
    expect(Array.from(stdout.matchAll(/^# TYPE (\w+) gauge$/gm), ([, name]) => name)).toEqual(documented);
    for (const name of ["oldest_ready_age_seconds", "oldest_expired_lease_age_seconds", "database_bytes"])
      expect(stdout).toMatch(new RegExp(`^localqueue_${name}\\{queue="default"\\} (0\\.0*)?[1-9]`, "m"));
  });

  test("escapes the name of the queue", async () => {
    const location = tempLocation();
    const name = 'a "b" \\ c\nd';
    await openQueue({ location, name }).put(1);
    const { code, stdout } = await runCli(["stats", location, "--prometheus", "--queue", name]);
    expect(code).toBe(0);
    expect(stdout).toContain('localqueue_jobs{queue="a \\"b\\" \\\\ c\\nd",state="ready"} 1\n');
    expect(stdout.endsWith("\n")).toBe(true);
    const kinds = /^(# (HELP|TYPE) localqueue_[a-z_]+ .+|localqueue_[a-z_]+\{.+\} [\d.]+)$/;
    expect(lines(stdout).filter((line) => !kinds.test(line))).toEqual([]);
  });
});

describe("what is typed wrong", () => {
  test.each<[string[], string]>([
    [["--interval", "500"], "--interval is for --watch: localqueue stats ./data --watch --interval 500"],
    [["--watch", "--interval", "50"], "Expected --interval to be an integer from 100 to 3600000, got 50."],
    [["--watch", "--interval", "1s"], 'Expected --interval to be an integer, got "1s".'],
    [["--watch", "--prometheus"], "--prometheus stands alone: localqueue stats ./data --prometheus"],
    [["--prometheus", "--json"], "--prometheus stands alone: localqueue stats ./data --prometheus"],
  ])("stats ./data %j", async (args, answer) => {
    const cwd = tempDirectory();
    expect(await runCli(["stats", "./data", ...args], { cwd })).toEqual({
      code: 2,
      stdout: "",
      stderr: `localqueue: ${answer}\n`,
    });
  });
});
