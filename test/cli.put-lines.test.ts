import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { Readable } from "node:stream";
import { describe, expect, onTestFinished, test } from "vitest";
import { CLI, Cli, runCli } from "./support/cli.ts";
import { refuseNew } from "./support/database.ts";
import { select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { atTerminal, TYPED } from "./support/terminal.ts";
import { until } from "./support/until.ts";

/**
 * Up to Node 22, it is 170 MB for one million lines as for four. From Node 24 on, V8 lets its space for new objects grow
 * to 128 MB in each of the two threads, however few of them live: 200 MB after one million lines, 300 MB after three,
 * and no more after that. A few hundred bytes kept of each line would be beyond either limit.
 */
const PEAK_KB = Number.parseInt(process.versions.node, 10) < 24 ? 200_000 : 360_000;

function payloads(location: string): unknown[] {
  return select(location, "SELECT CAST(payload AS TEXT) AS payload FROM messages ORDER BY id").map(
    ({ payload }) => payload,
  );
}

describe("put with lines on standard input", () => {
  test("stores the text of each line, without what is around it", async () => {
    const location = tempLocation();
    const input = '\uFEFF{"n":12345678901234567890}\r\n\n  \t\r\n\t"ü" \n{ "a" : 1.0 }\nnull';
    const { code, stdout } = await runCli(["put", location], { input });
    expect([code, stdout]).toEqual([0, `Put 4 jobs into queue "default" of ${location}\n`]);
    expect(payloads(location)).toEqual(['{"n":12345678901234567890}', '"ü"', '{ "a" : 1.0 }', "null"]);
  });

  test("puts nothing if there is nothing", async () => {
    const location = tempLocation();
    const { code, stdout } = await runCli(["put", location], { input: "\n \n" });
    expect([code, stdout]).toEqual([0, `Put 0 jobs into queue "default" of ${location}\n`]);
  });

  test("refuses a directory, which Node would take for an empty input", async () => {
    const location = path.join(tempDirectory(), "data");
    const line = `exec '${process.execPath}' '${CLI}' put '${location}' < /`;
    const { status, stderr } = spawnSync("sh", ["-c", line], { encoding: "utf8" });
    expect([status, stderr]).toEqual([1, "localqueue: Standard input is a directory: there are no lines to read.\n"]);
    expect(existsSync(location)).toBe(false);
  });

  test("can be repeated with --job-id-field", async () => {
    const location = tempLocation();
    const lines = Array.from({ length: 5_000 }, (_, n) => JSON.stringify({ id: `${n}` }));
    const put = (count: number): ReturnType<typeof runCli> =>
      runCli(["put", location, "--job-id-field", "id", "--json"], { input: lines.slice(0, count).join("\n") });
    expect((await put(3_000)).stdout).toBe('{"put":3000,"known":0,"firstId":1,"lastId":3000}\n');
    expect(JSON.parse((await put(5_000)).stdout)).toMatchObject({ put: 2_000, known: 3_000 });
    expect(payloads(location)).toEqual(lines);
  });

  test.each<[string, string | Uint8Array, string[], string]>([
    ["not JSON", '1\n\n2\nsecret"\n3\n', [], "Line 4 is not valid JSON. 2 jobs had been put by then."],
    ["not UTF-8", Buffer.from([0x31, 0x0a, 0x22, 0xff, 0x22, 0x0a]), [], "Line 2 is not valid UTF-8. 1 job had been"],
    [
      "not UTF-8 after many that are",
      Buffer.concat([Buffer.from('\n"ü"\n'.repeat(20_000)), Buffer.from([0x31, 0x0a, 0xff])]),
      [],
      "Line 40002 is not valid UTF-8. 20,001 jobs had been put by then.",
    ],
    ["UTF-16", Buffer.from('\uFEFF"secret"\n', "utf16le"), [], "Line 1 is not valid UTF-8. 0 jobs had been put"],
    ["a second byte order mark", '1\n\uFEFF"secret"\n', [], "Line 2 is not valid JSON. 1 job had been put by then."],
    [
      "without the id",
      '{"id":"a"}\n{"secret":1}',
      ["--job-id-field", "id"],
      'Line 2 has no field "id" that is a text.',
    ],
    ["with a useless id", `{"id":"${"secret".repeat(100)}"}`, ["--job-id-field", "id"], "Line 1 has no usable id in"],
  ])("ends at a line that is %s, and all before it is put", async (_, input, args, message) => {
    const location = tempLocation();
    const { code, stdout, stderr } = await runCli(["put", location, ...args], { input });
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toContain(`localqueue: ${message}`);
    expect(stderr).not.toContain("secret");
    const count = Number(/([\d,]+) jobs? had been put/.exec(stderr)?.[1]?.replace(",", ""));
    expect(count === 0 ? [] : payloads(location)).toHaveLength(count);
  });

  test("ends at the first of many lines that is wrong, with a report for programs", async () => {
    const location = tempLocation();
    const input = `${"[]\n".repeat(12_345)}oops\n${"[]\n".repeat(5_000)}`;
    const { code, stdout, stderr } = await runCli(["put", location, "--json"], { input });
    expect(code).toBe(1);
    expect(stdout).toBe('{"put":12345,"known":0,"firstId":1,"lastId":12345}\n');
    expect(stderr).toBe("localqueue: Line 12346 is not valid JSON. 12,345 jobs had been put by then.\n");
    expect(payloads(location)).toHaveLength(12_345);
  });

  test("tells how far it came when the storage fails", async () => {
    const location = tempLocation();
    await openQueue({ location, name: "other" }).put(1);
    onTestFinished(refuseNew(location, '"bad"'));
    const cli = new Cli(["put", location]);
    cli.child.stdin.write("1\n2\n");
    await until(() => payloads(location).length === 3);
    cli.child.stdin.write('"bad"\n3\n');
    cli.child.stdin.end(`${"4\n".repeat(100_000)}`);
    const { code, stderr } = await cli.ended;
    expect(code).toBe(1);
    const [, count] = /^localqueue: IO: .+\. (\d+) jobs had been put by then\.\n$/.exec(stderr) ?? [];
    // The two, and perhaps the batch that was under way at the same time.
    expect(["2", "502"]).toContain(count);
    expect(payloads(location)).toHaveLength(Number(count) + 1);
  });

  test("puts what is there while its producer takes its time", async () => {
    const location = tempLocation();
    const cli = new Cli(["put", location]);
    const queue = openQueue<number>({ location });
    for (const n of [1, 2, 3]) {
      cli.child.stdin.write(`${n}\n`);
      await until(async () => (await queue.stats()).ready === n);
    }
    cli.child.stdin.end();
    expect((await cli.ended).stdout).toContain("Put 3 jobs into");
  });

  test("refuses a line that would fill the memory", async () => {
    const location = tempLocation();
    const cli = new Cli(["put", location]);
    const megabyte = Buffer.alloc(1024 * 1024, "1");
    Readable.from(
      (function* () {
        yield "1\n";
        for (let n = 0; n < 1_000; n++) yield megabyte;
      })(),
    ).pipe(cli.child.stdin);
    const { code, stderr } = await cli.ended;
    expect(code).toBe(1);
    expect(stderr).toBe("localqueue: Line 2 is longer than 128 MiB. 1 job had been put by then.\n");
  });

  test("has a line of many megabytes arrive whole, and others with it", async () => {
    const location = tempLocation();
    const long = JSON.stringify("x".repeat(70 * 1024 * 1024));
    const { code, stderr } = await runCli(["put", location], { input: `1\n${long}\n2\n${long}\n3\n` });
    expect([code, stderr]).toEqual([0, ""]);
    const lengths = select(location, "SELECT length(payload) AS length FROM messages ORDER BY id");
    expect(lengths.map(({ length }) => length)).toEqual([1, long.length, 1, long.length, 1]);
  }, 60_000);

  test("takes a million lines in bounded memory", async () => {
    const location = tempLocation();
    const lines = Array.from({ length: 10_000 }, (_, n) => JSON.stringify({ n, pad: "x".repeat(82) }));
    const piece = Buffer.from(`${lines.join("\n")}\n`);
    const cli = new Cli(["put", location]);
    Readable.from(Array.from({ length: 100 }, () => piece)).pipe(cli.child.stdin);
    let peak = 0;
    await until(() => {
      const status = cli.child.exitCode !== null ? "" : readFileSync(`/proc/${cli.child.pid}/status`, "utf8");
      peak = Math.max(peak, Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0));
      return cli.hasEnded;
    }, 120_000);
    expect(await cli.ended).toMatchObject({
      code: 0,
      stdout: `Put 1,000,000 jobs into queue "default" of ${location}\n`,
    });
    expect(peak).toBeGreaterThan(10_000);
    expect(peak).toBeLessThan(PEAK_KB);
  }, 150_000);

  test.each(["SIGINT", "SIGTERM"] as const)(
    "at %s puts what it has read, and says how much that is",
    async (signal) => {
      const location = tempLocation();
      const cli = new Cli(["put", location]);
      cli.child.stdin.write("1\n2\n3");
      const queue = openQueue<number>({ location });
      await until(async () => (await queue.stats()).ready === 2);
      cli.kill(signal);
      expect(await cli.ended).toEqual({
        code: 1,
        stdout: "",
        stderr: "localqueue: Interrupted. 2 jobs had been put by then.\n",
      });
      expect(payloads(location)).toEqual(["1", "2"]);
    },
  );
});

describe("at a terminal", () => {
  test("put without anything to put says what to type", async () => {
    const shown = await atTerminal(`${TYPED} put ./data; echo "exit code $?"`);
    expect(shown).toBe(
      `localqueue: There is nothing to put. Type one of:
  localqueue put ./data '{"hello":"world"}'
  localqueue put ./data < jobs.jsonl
exit code 2
`,
    );
  });

  test("put shows how far it is, and leaves only the report", async () => {
    const location = tempLocation();
    const lines = `'${process.execPath}' -e 'for (let i = 0; i < 100000; i++) console.log(i)'`;
    const shown = await atTerminal(`${lines} | ${TYPED} put '${location}'`);
    const [before, ...states] = shown.split("\r␛[K");
    expect(before).toBe("");
    expect(states.pop()).toBe(`Put 100,000 jobs into queue "default" of ${location}\n`);
    expect(states.length).toBeGreaterThan(0);
    for (const state of states) expect(state).toMatch(/^[\d,]+ jobs, [\d,]+\/s$/);
  });
});
