import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, symlinkSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { tempDirectory } from "./support/temp.ts";

/*
 * The example runs with a tracer of the tests', and also with OpenTelemetry itself if that was installed:
 * npm install --no-package-lock --prefix examples/opentelemetry
 */
const EXAMPLE = path.resolve("examples/opentelemetry");
const INSTALLED = path.join(EXAMPLE, "node_modules/@opentelemetry");
const TRACERS = { "a tracer of the tests'": path.resolve("test/support/opentelemetry"), OpenTelemetry: INSTALLED };

interface Span {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parent?: string;
  readonly linked: readonly string[];
  readonly attributes: Readonly<Record<string, unknown>>;
}

describe.each(Object.entries(TRACERS).filter(([, home]) => existsSync(home)))("the example, with %s", (_, home) => {
  test("makes one trace of a put in one process and the handler in another", () => {
    const directory = tempDirectory();
    cpSync(EXAMPLE, directory, { recursive: true, filter: (file) => !file.includes("node_modules") });
    mkdirSync(path.join(directory, "node_modules"));
    symlinkSync(home, path.join(directory, "node_modules/@opentelemetry"));
    symlinkSync(path.resolve("."), path.join(directory, "node_modules/localqueue"));
    const [checkout, send] = run(directory, "put", ["checkout", "send orders"]);
    const [handled, charge, sendMail] = run(directory, "work", ["process orders", "charge", "send mails"]);

    const child = (span: Span | undefined): object => ({ traceId: checkout?.traceId, parent: span?.spanId });
    expect(checkout?.parent).toBeUndefined();
    expect(send).toMatchObject({ ...child(checkout), attributes: { "messaging.message.id": "1" } });
    expect(handled).toMatchObject({
      ...child(send),
      linked: [send?.spanId],
      attributes: { "messaging.message.id": "1", "localqueue.attempt": 1, "messaging.operation.type": "process" },
    });
    expect(charge).toMatchObject(child(handled));
    expect(sendMail).toMatchObject({ ...child(charge), attributes: { "messaging.destination.name": "mails" } });
  });
});

/** Runs the example's program; returns the spans of these names, which must be all. */
function run(directory: string, command: string, names: readonly string[]): (Span | undefined)[] {
  const args = ["main.mjs", command, "./data"];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: directory, encoding: "utf8" });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  const lines = stdout.trim().split("\n");
  const spans = lines.map((line) => JSON.parse(line) as Span);
  expect(spans.map(({ name }) => name).sort()).toEqual([...names].sort());
  return names.map((name) => spans.find((span) => span.name === name));
}
