import { existsSync } from "node:fs";
import path from "node:path";
import type { SimpleQueue } from "localqueue";
import { describe, expect, test } from "vitest";
import { Cli, runCli, typed } from "./support/cli.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { atTerminal, TYPED } from "./support/terminal.ts";

const RAW = { encode: (payload: string | Uint8Array) => Buffer.from(payload), decode: (bytes: Uint8Array) => bytes };

interface Letters {
  readonly location: string;
  readonly queue: SimpleQueue<string | Uint8Array>;
}

/** A queue whose jobs all became dead letters: rejected, apart from the last one, whose retries are used up. */
async function deadLetters(...payloads: readonly (string | Uint8Array)[]): Promise<Letters> {
  const location = tempLocation();
  const queue = openQueue<string | Uint8Array>({ location, name: "emails", serializer: RAW, maxRetries: 0 });
  await queue.putMany(payloads);
  for (const [index, job] of (await queue.getMany(payloads.length)).entries()) {
    if (index < payloads.length - 1) await job.fail({ lastError: new Error("no such address"), category: "exit-65" });
    else await job.nack({ lastError: new Error("timed out\n\x1b[31mafter 5 s") });
  }
  return { location, queue };
}

const on = (location: string, ...args: readonly string[]): string[] => {
  const [action = "", ...more] = args;
  return ["failed", action, location, "--queue", "emails", ...more];
};

describe("failed list", () => {
  test("shows a table that fits in 80 columns", async () => {
    const { location } = await deadLetters("{}", "{}");
    const { code, stdout, stderr } = await runCli(on(location, "list"));
    expect([code, stderr]).toEqual([0, ""]);
    const [head, first, second, end] = stdout.split("\n");
    expect(head).toBe("id  failed at             tries  reason                          last error");
    expect(first).toMatch(
      /^ 1 {2}\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ {6}1 {2}explicit_permanent_failure\/ex… {2}Error: no such…$/,
    );
    expect(second).toMatch(/^ 2 {2}\S+ \S+Z {6}1 {2}retries_exhausted {15}Error: timed o…$/);
    expect(end).toBe("");
    for (const line of stdout.split("\n")) expect(line.length).toBeLessThanOrEqual(80);
  });

  test("gives programs the payloads, byte for byte where they are JSON", async () => {
    const { location } = await deadLetters(
      '{"n":12345678901234567890,\n "f":1.0}',
      "no json",
      new Uint8Array([255, 0]),
    );
    const { code, stdout, stderr } = await runCli(on(location, "list", "--json"));
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout.trimEnd().split("\n").length).toBe(1);
    expect(stdout).toContain('"data":{"n":12345678901234567890,  "f":1.0}');
    const [first, second, third] = JSON.parse(stdout);
    expect(first).toEqual({
      id: 1,
      jobId: null,
      attempts: 1,
      reason: "explicit_permanent_failure",
      category: "exit-65",
      lastError: "Error: no such address",
      createdAt: expect.stringMatching(/Z$/),
      updatedAt: expect.stringMatching(/Z$/),
      data: expect.anything(),
    });
    expect(second).toMatchObject({ id: 2, payloadBase64: Buffer.from("no json").toString("base64") });
    expect(third).toMatchObject({ id: 3, category: null, payloadBase64: "/wA=", reason: "retries_exhausted" });
  });

  test("goes on from page to page, as it says", async () => {
    const { location } = await deadLetters("1", "2", "3", "4", "5");
    const page = async (...args: string[]): Promise<[number[], string]> => {
      const { stdout, stderr } = await runCli(on(location, "list", "--json", ...args));
      return [JSON.parse(stdout).map(({ id }: { id: number }) => id), stderr];
    };
    const next = `localqueue failed list ${typed(location)} --queue emails --limit 2 --category exit-65 --after`;
    expect(await page("--limit", "2", "--category", "exit-65")).toEqual([
      [1, 2],
      `localqueue: There may be more: ${next} 2\n`,
    ]);
    expect(await page("--limit", "2", "--after", "2", "--category", "exit-65")).toEqual([
      [3, 4],
      `localqueue: There may be more: ${next} 4\n`,
    ]);
    expect(await page("--limit", "2", "--after", "4")).toEqual([[5], ""]);
    expect(await page("--reason", "retries_exhausted")).toEqual([[5], ""]);
  });

  test("says so when there is none", async () => {
    const { location, queue } = await deadLetters("1");
    await queue.purgeFailed({});
    expect((await runCli(on(location, "list"))).stdout).toBe(`No such dead letters: Queue "emails" of ${location}\n`);
    expect((await runCli(on(location, "list", "--json"))).stdout).toBe("[]\n");
  });

  test("is bold at a terminal only, and not with NO_COLOR", async () => {
    const { location } = await deadLetters("1");
    const line = `${TYPED} failed list "${location}" --queue emails`;
    const shown = await atTerminal(line);
    expect(shown).toMatch(/^␛\[1mid {2}failed at .*␛\[22m\n 1 {2}/);
    expect(shown).toContain("Error: timed out\\u000a\\u001…\n");
    expect(await atTerminal(line, { NO_COLOR: "1" })).not.toContain("␛");
  });

  test("does not mind that nobody reads it to the end", async () => {
    const { location } = await deadLetters("1", "2");
    const cli = new Cli(on(location, "list"));
    cli.child.stdout.destroy();
    expect(await cli.ended).toEqual({ code: 0, stdout: "", stderr: "" });
  });
});

describe("failed show", () => {
  test("shows all there is to know, and JSON in lines", async () => {
    const { location } = await deadLetters('{"to":"ada@example.com","tags":[1]}');
    const { code, stdout } = await runCli(on(location, "show", "1"));
    expect(code).toBe(0);
    expect(stdout.replace(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ/g, "TIME")).toBe(
      `Dead letter 1: Queue "emails" of ${location}
put at      TIME
failed at   TIME
tries       1
reason      retries_exhausted
last error  Error: timed out\\u000a\\u001b[31mafter 5 s
payload     JSON, 35 bytes

{
  "to": "ada@example.com",
  "tags": [
    1
  ]
}
`,
    );
    const json = await runCli(on(location, "show", "1", "--json"));
    expect(JSON.parse(json.stdout)).toMatchObject({ id: 1, data: { to: "ada@example.com", tags: [1] } });
  });

  test.each<[string, string | Uint8Array, string]>([
    ["JSON whose numbers would change, as it is", '{"n":12345678901234567890}', '{"n":12345678901234567890}\n'],
    ["another text, without what would command the terminal", "a\x1b[2Jb\r\nü", "a\\u001b[2Jb\nü\n"],
    [
      "bytes in hexadecimal",
      new Uint8Array([255, 0, 65, 66, ...new Array(14).fill(128)]),
      `00000000  ff 00 41 42 80 80 80 80 80 80 80 80 80 80 80 80  ..AB............
00000010  80 80                                            ..
`,
    ],
    ["nothing", "", "\n"],
  ])("shows %s", async (_, payload, shown) => {
    const { location } = await deadLetters(payload);
    const { stdout } = await runCli(on(location, "show", "1"));
    expect(stdout.slice(stdout.indexOf("\n\n") + 2)).toBe(shown);
  });

  test("writes the bytes of the payload with --raw", async () => {
    const bytes = Buffer.from([...new Array(256).keys()]);
    const { location } = await deadLetters(bytes);
    const cli = new Cli(on(location, "show", "1", "--raw"));
    const chunks: Buffer[] = [];
    cli.child.stdout.removeAllListeners("data").setEncoding("latin1");
    cli.child.stdout.on("data", (text: string) => chunks.push(Buffer.from(text, "latin1")));
    expect(await cli.ended).toMatchObject({ code: 0, stderr: "" });
    expect(Buffer.concat(chunks)).toEqual(bytes);
  });

  test("says what a job is that is no dead letter", async () => {
    const { location, queue } = await deadLetters("1");
    const { id } = await queue.put("2");
    expect(await runCli(on(location, "show", `${id}`))).toEqual({
      code: 1,
      stdout: "",
      stderr: `localqueue: NOT_FOUND: Job ${id} is no dead letter but ready, in queue "emails".\n`,
    });
    expect((await runCli(on(location, "show", "99"))).stderr).toBe(
      'localqueue: NOT_FOUND: There is no dead letter 99 in queue "emails".\n',
    );
  });
});

describe.each([
  ["retry", "retried", "ready again"],
  ["purge", "purged", "deleted"],
])("failed %s", (action, counted, told) => {
  const left = { retry: { ready: 2, failed: 1 }, purge: { ready: 0, failed: 1 } }[action];

  test("takes ids", async () => {
    const { location, queue } = await deadLetters("1", "2", "3");
    expect(await runCli(on(location, action, "1", "3", "3"))).toEqual({
      code: 0,
      stdout: `2 jobs ${told}: Queue "emails" of ${location}\n`,
      stderr: "",
    });
    expect(await queue.stats()).toMatchObject(left ?? {});
  });

  test("tells which ids are unknown, and does the others", async () => {
    const { location, queue } = await deadLetters("1", "2", "3");
    const { code, stdout, stderr } = await runCli(on(location, action, "1", "99", "2", "--json"));
    expect([code, stdout]).toEqual([1, `{"${counted}":2,"unknown":[99]}\n`]);
    expect(stderr).toBe('localqueue: NOT_FOUND: There is no dead letter 99 in queue "emails".\n');
    expect(await queue.stats()).toMatchObject(left ?? {});
  });

  test("takes a filter", async () => {
    const { location, queue } = await deadLetters("1", "2", "3");
    expect((await runCli(on(location, action, "--category", "exit-65", "--json"))).stdout).toBe(
      `{"${counted}":2,"unknown":[]}\n`,
    );
    expect(await queue.stats()).toMatchObject(left ?? {});
    expect((await runCli(on(location, action, "--all", "--reason", "rejected", "--json"))).stdout).toBe(
      `{"${counted}":0,"unknown":[]}\n`,
    );
  });

  test("takes all", async () => {
    const { location, queue } = await deadLetters("1", "2", "3");
    expect((await runCli(on(location, action, "--all"))).stdout).toMatch(/^3 jobs /);
    expect(await queue.stats()).toMatchObject({ failed: 0 });
  });

  test("does nothing if not told with which", async () => {
    const cwd = tempDirectory();
    const line = `localqueue failed ${action} ./data`;
    expect(await runCli(["failed", action, "./data"], { cwd })).toEqual({
      code: 2,
      stdout: "",
      stderr: `localqueue: Which dead letters? Type one of:
  ${line} ID…
  ${line} --reason retries_exhausted
  ${line} --all
`,
    });
  });
});

describe("what is typed wrong is answered with what to type, and exit code 2:", () => {
  test.each<[string[], string]>([
    [[], "Say what to do. The commands are failed list, failed show, failed retry, failed purge."],
    [["lst", "./a"], 'Unknown command "failed lst". Did you mean "failed list"?'],
    [["./a"], 'Unknown command "failed ./a". The commands are failed list, failed show, failed retry, failed purge.'],
    [["list"], "The location is missing. Usage: localqueue failed list <location> [options]"],
    [["list", "./a", "5"], '"5" is one argument too many. Usage: localqueue failed list <location> [options]'],
    [["list", "./a", "--limit", "0"], "Expected --limit to be an integer from 1 to 10000, got 0."],
    [["list", "./a", "--after", "-1"], "Expected --after to be an integer from 0 to"],
    [["show", "./a"], "The id is missing; localqueue failed list ./a shows them."],
    [
      ["show", "./a", "x"],
      '"x" is no id of a dead letter, which is an integer from 1. Usage: localqueue failed show <location> ID',
    ],
    [["show", "./a", "0"], '"0" is no id of a dead letter'],
    [["show", "./a", "1", "2"], '"2" is one argument too many.'],
    [["show", "./a", "1", "--raw", "--json"], "Give --raw or --json, not both."],
    [["retry", "./a", "1", "--all"], "Give ids, or --all or a filter, not both."],
    [["purge", "./a", "1", "--reason", "rejected"], "Give ids, or --all or a filter, not both."],
    [["purge", "./a", "1.5"], '"1.5" is no id of a dead letter'],
  ])("failed %j", async (args, answer) => {
    const cwd = tempDirectory();
    const { code, stdout, stderr } = await runCli(["failed", ...args], { cwd });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr.startsWith(`localqueue: ${answer}`), stderr).toBe(true);
    expect(existsSync(path.join(cwd, "a"))).toBe(false);
  });

  test.each([
    ["--reason", "bad"],
    ["--category", ""],
  ])("failed list %s %j", async (option, value) => {
    const { location } = await deadLetters("1");
    const { code, stdout, stderr } = await runCli(on(location, "list", option, value));
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(new RegExp(`^localqueue: Expected ${option} to be .*\\.\n$`));
  });

  test.each([["list"], ["show", "1"], ["retry", "1"], ["purge", "--all"]])(
    "failed %s of a place without a queue creates nothing",
    async (action, ...more) => {
      const cwd = tempDirectory();
      expect(await runCli(["failed", action, "./a", ...more], { cwd })).toEqual({
        code: 1,
        stdout: "",
        stderr: "localqueue: There is no queue in ./a: it has no localqueue.db.\n",
      });
      expect(existsSync(path.join(cwd, "a"))).toBe(false);
    },
  );
});
