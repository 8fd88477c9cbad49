import { existsSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { runCli } from "./support/cli.ts";
import { select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { tempDirectory } from "./support/temp.ts";

function rows(location: string): unknown[] {
  return select(location, "SELECT CAST(payload AS TEXT) AS payload, job_id FROM messages ORDER BY id");
}

function payloads(location: string): unknown[] {
  return select(location, "SELECT CAST(payload AS TEXT) AS payload FROM messages ORDER BY id").map(
    ({ payload }) => payload,
  );
}

describe("put with payloads", () => {
  test("stores their very text", async () => {
    const cwd = tempDirectory();
    const texts = ['{"n":12345678901234567890,"e":1.0}', '"ü"', "null", '{ "b" : 1,\n "a" : 2, "b": 3 }'];
    expect(await runCli(["put", "./data", ...texts, "  [1]\n", "--", "-5"], { cwd })).toEqual({
      code: 0,
      stdout: 'Put 6 jobs into queue "default" of ./data\n',
      stderr: "",
    });
    expect(payloads(path.join(cwd, "data"))).toEqual([...texts, "[1]", "-5"]);
  });

  test("puts all or nothing: one that is not JSON is named, not shown", async () => {
    const cwd = tempDirectory();
    const { code, stdout, stderr } = await runCli(["put", "./data", "1", "secret"], { cwd });
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toBe(
      `localqueue: Payload 2 is not valid JSON. Nothing was put. A text needs quotes of its own: '"hello"'.\n`,
    );
    expect(existsSync(path.join(cwd, "data"))).toBe(false);
  });

  test("has a queue, a delay, retries, flushing, and a report for programs", async () => {
    const location = tempLocation();
    const options = ["--queue", "emails", "--delay-ms", "60000", "--max-retries", "7", "--fsync", "--json"];
    const { code, stdout } = await runCli(["put", location, "1", "2", ...options]);
    expect([code, stdout]).toEqual([0, '{"put":2,"known":0,"firstId":1,"lastId":2}\n']);
    expect(
      select(
        location,
        "SELECT queue, max_attempts, round((available_at - created_at) / 1000.0) AS delay FROM messages",
      ),
    ).toEqual([1, 2].map(() => ({ queue: "emails", max_attempts: 8, delay: 60 })));
  });

  test("--job-id makes a second put harmless", async () => {
    const location = tempLocation();
    const put = (): Promise<{ stdout: string }> => runCli(["put", location, '{"to":"ada"}', "--job-id", "welcome"]);
    expect((await put()).stdout).toBe(`Put 1 job into queue "default" of ${location}\n`);
    expect((await put()).stdout).toBe(`Put 0 jobs into queue "default" of ${location} (1 was known already)\n`);
    expect(rows(location)).toEqual([{ payload: '{"to":"ada"}', job_id: "welcome" }]);
    const { stdout } = await runCli(["put", location, "1", "--job-id", "welcome", "--json"]);
    expect(stdout).toBe('{"put":0,"known":1,"firstId":null,"lastId":null}\n');
  });

  test("--job-id-field takes each one's id from itself", async () => {
    const location = tempLocation();
    const put = (...texts: string[]): Promise<{ stdout: string }> =>
      runCli(["put", location, ...texts, "--job-id-field", "id"]);
    await put('{"id":"a"}', '{"id":"b","x":1}');
    expect((await put('{"id":"b"}', '{"id":"c"}', '{"id":"a"}')).stdout).toBe(
      `Put 1 job into queue "default" of ${location} (2 were known already)\n`,
    );
    expect(rows(location)).toMatchObject([{ job_id: "a" }, { job_id: "b" }, { job_id: "c" }]);
  });

  test.each<[string[], string]>([
    [["--job-id", "x", "1", "2"], "--job-id is for one payload; several have --job-id-field NAME."],
    [["--job-id", "x", "--job-id-field", "id", "1"], "Give --job-id or --job-id-field, not both."],
    [["--job-id", "x"], "--job-id is for one payload; lines have --job-id-field NAME."],
    [["--job-id-field", "id", '{"id":7}'], 'Payload 1 has no field "id" that is a text. Nothing was put.'],
    [["--job-id-field", "id", "null"], 'Payload 1 has no field "id" that is a text. Nothing was put.'],
    [["--job-id-field", "toString", "{}"], 'Payload 1 has no field "toString" that is a text. Nothing was put.'],
    [["--job-id-field", "id", '{"id":""}'], 'Payload 1 has no usable id in its field "id": 1 to 512 bytes'],
  ])("%j is misuse", async (args, answer) => {
    const cwd = tempDirectory();
    const { code, stderr } = await runCli(["put", "./data", ...args], { cwd });
    expect(code).toBe(2);
    expect(stderr.startsWith(`localqueue: ${answer}`), stderr).toBe(true);
    expect(existsSync(path.join(cwd, "data"))).toBe(false);
  });
});
