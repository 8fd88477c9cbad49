import { readFileSync } from "node:fs";
import path from "node:path";
import { SimpleQueue } from "localqueue";
import { describe, expect, onTestFinished, test } from "vitest";
import { select } from "../support/inspect.ts";
import { openQueue } from "../support/queue.ts";
import { tempDirectory } from "../support/temp.ts";
import { until } from "../support/until.ts";
import { CURRENT, INSTALLED, PythonQueue } from "./support/python.ts";
import { sharedDirectory } from "./support/sides.ts";

/** Puts, in Python, one job into each state. */
async function fill(python: PythonQueue): Promise<Record<"acked" | "failed" | "held" | "delayed" | "ready", number>> {
  const acked = await python.put({ is: "acked" }, { job_id: "known" });
  await python.call("ack", await python.get());
  const failed = await python.put({ is: "failed ä😀" });
  await python.call("fail", await python.get(), "ValueError: ä😀");
  const held = await python.put({ is: "held" });
  await python.get();
  const delayed = await python.put({ is: "delayed" });
  await python.call("nack", await python.get(), { delay: 3600.0, last_error: "later" });
  return { acked, failed, held, delayed, ready: await python.put({ is: "ready" }) };
}

describe.each(INSTALLED)("a file that Python %s made", (version) => {
  test("works here, and afterwards there and in the current version", async () => {
    const directory = sharedDirectory();
    const python = new PythonQueue(directory, {}, version);
    const { acked, failed, held, delayed, ready } = await fill(python);
    const queue = openQueue({ location: directory });
    const counts = { ready: 2, processing: 1, acked: 1, failed: 1 };
    expect(await queue.stats()).toEqual(counts);
    expect(await python.stats()).toEqual(counts);
    expect(await queue.find({ jobId: "known" })).toMatchObject({ id: acked, state: "acked" });
    expect(await queue.find({ id: delayed })).toMatchObject({ attempts: 1, lastError: "later" });
    expect(await queue.put("again", { jobId: "known" })).toEqual({ id: acked, inserted: false });
    expect(await queue.listFailed()).toMatchObject([
      { id: failed, data: { is: "failed ä😀" }, attempts: 1, lastError: "ValueError: ä😀" },
    ]);
    const [letter] = await queue.listFailed();
    expect(letter?.reason).toBe(hasReasons(version) ? "explicit_permanent_failure" : "legacy_unknown");

    const job = await queue.get();
    expect(job).toMatchObject({ id: ready, data: { is: "ready" } });
    await queue.ack(job);
    await expect(queue.getNowait()).rejects.toMatchObject({ code: "EMPTY" });
    expect(await queue.find({ id: held })).toMatchObject({ state: "processing", attempts: 1 });
    expect(await queue.retryFailed(failed)).toBe(1);
    const again = await queue.get();
    expect(again).toMatchObject({ id: failed, attempt: 1 });
    await queue.nack(again, { lastError: "no" });
    await until(async () => (await queue.purge({ olderThanMs: 0 })) > 0);

    // The version that made the file goes on with it, as it is now, and the newest one as well.
    for (const later of [python, new PythonQueue(directory, {}, version), new PythonQueue(directory)]) {
      for (let i = 0; i < 2; i++) await later.put({ from: "Python" });
      await later.call("ack", await later.get({ timeout: 5 }));
      expect(await later.stats()).toEqual(await queue.stats());
      expect(await queue.get({ timeoutMs: 5000 })).toMatchObject({ data: { from: "Python" } });
    }
  });

  test("is brought up to date by us and by the current Python version at the same time", async () => {
    const directory = sharedDirectory();
    const python = new PythonQueue(directory, {}, version);
    await fill(python);
    const queues = Array.from({ length: 2 }, () => openQueue({ location: directory }));
    const pythons = Array.from({ length: 2 }, () => new PythonQueue(directory));
    const [first, ...others] = await Promise.all([...queues, ...pythons].map((queue) => queue.stats()));
    expect(first).toEqual({ ready: 2, processing: 1, acked: 1, failed: 1 });
    for (const other of others) expect(other).toEqual(first);
    expect(await pythons[0]?.call("check_integrity")).toMatchObject({ ok: true, messages: ["ok"] });
  });
});

describe.each(INSTALLED)("Python %s", (version) => {
  test("works in a file that we made", async () => {
    const directory = sharedDirectory();
    const queue = openQueue({ location: directory });
    await queue.putMany(["a", "b", "c", "d"]);
    await queue.put("known", { jobId: "known", delayMs: 3_600_000 });
    await queue.fail(await queue.get(), { lastError: "no", category: "test" });
    const python = new PythonQueue(directory, {}, version);
    expect(await python.stats()).toEqual({ ready: 4, processing: 0, acked: 0, failed: 1 });
    const job = await python.get();
    expect(JSON.parse(job.text)).toBe("b");
    await python.call("ack", job);
    expect(await queue.stats()).toEqual({ ready: 3, processing: 0, acked: 1, failed: 1 });
    expect(await python.listFailed()).toMatchObject([{ text: '"a"', attempts: 1, last_error: "no" }]);
    await python.call("retry_failed", 1);
    expect(await python.put("known", { job_id: "known" })).toBe(5);
    await python.call("nack", await python.get(), { delay: 0.0, last_error: "again" });
    expect(await queue.get()).toMatchObject({ id: 1, attempt: 2 });
    await until(async () => (await python.call<number>("purge", 0)) > 0);
    expect(await queue.stats()).toEqual({ ready: 3, processing: 1, acked: 0, failed: 0 });
  });
});

test("the layout of a file is the same whoever made it, but for what we add", async () => {
  const [theirs, ours] = [sharedDirectory(), sharedDirectory()];
  const python = new PythonQueue(theirs);
  await python.stats();
  await python.end();
  const queue = new SimpleQueue(ours);
  await queue.stats();
  await queue.close();
  const opened = new PythonQueue(ours);
  await opened.stats();
  await opened.end();

  const layout = (directory: string): string[] =>
    select(directory, "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY 1, 2, 3")
      .filter(({ name }) => !String(name).startsWith("localqueue"))
      .map(({ type, name, tbl_name, sql }) => [type, name, tbl_name, String(sql).split(/\s+/).join(" ")].join("|"));
  const withoutOurs = layout(ours).map((line) =>
    line.replace(", releases INTEGER NOT NULL DEFAULT 0", "").replace(", trace_context TEXT", ""),
  );
  expect(withoutOurs.map(loose)).toEqual(layout(theirs).map(loose));
});

test("Python checks, copies and compacts a file of ours, and both go on with the file and the copy", async () => {
  const directory = sharedDirectory();
  const queue = openQueue({ location: directory });
  await queue.putMany(Array.from({ length: 500 }, (_, i) => ({ i, text: "x".repeat(1000) })));
  await queue.fail(await queue.get(), { lastError: "no" });
  const python = new PythonQueue(directory);
  for (const mode of ["full", "quick"]) {
    const report = await python.call("check_integrity", { mode });
    expect(report).toMatchObject({ ok: true, messages: ["ok"], mode });
  }
  expect(await queue.checkIntegrity()).toMatchObject({ ok: true });
  const copy = path.join(tempDirectory(), "copy");
  const report = await python.call<{ verified: boolean }>("backup", copy);
  expect(report).toMatchObject({ verified: true, verification_messages: ["ok"] });
  const restored = openQueue({ location: copy });
  expect(await restored.stats()).toEqual({ ready: 499, processing: 0, acked: 0, failed: 1 });
  expect(await restored.get()).toMatchObject({ id: 2 });

  const ourCopy = path.join(tempDirectory(), "copy");
  await queue.backup(ourCopy);
  const reader = new PythonQueue(ourCopy);
  expect(await reader.stats()).toEqual({ ready: 499, processing: 0, acked: 0, failed: 1 });
  expect(await reader.get({ timeout: 5 })).toMatchObject({ id: 2 });

  await python.call("vacuum");
  expect(await queue.get()).toMatchObject({ id: 2 });
  await queue.put("after");
  expect(await python.get({ timeout: 5 })).toMatchObject({ id: 3 });
  expect(await python.stats()).toEqual(await queue.stats());
  expect(await python.call("check_integrity")).toMatchObject({ ok: true });
  expect(await python.call("diagnostics")).toMatchObject({ ready: 498, processing: 2, failed: 1, journal_mode: "wal" });
});

test("our vacuum leaves a file with which Python's open queue goes on", async () => {
  const directory = sharedDirectory();
  const queue = openQueue({ location: directory });
  const python = new PythonQueue(directory);
  await python.put(1);
  await queue.vacuum();
  expect(await python.put(2)).toBe(2);
  expect(await queue.get()).toMatchObject({ id: 1 });
  expect(await python.stats()).toEqual({ ready: 1, processing: 1, acked: 0, failed: 0 });
  onTestFinished(() => python.kill());
});

test("docs/python.md names the versions that are tested, and the SQLite in them", async () => {
  const text = readFileSync("docs/python.md", "utf8");
  expect(INSTALLED).toContain(CURRENT);
  expect(INSTALLED.filter((version) => !text.includes(version))).toEqual([]);
  const { sqlite_version } = await new PythonQueue(sharedDirectory()).call<Record<string, string>>("diagnostics");
  expect(text).toContain(`SQLite ${sqlite_version}`);
});

function hasReasons(version: string): boolean {
  return Number(version.split(".")[1]) >= 3;
}

/** SQLite keeps the text of a statement as it was written. */
function loose(line: string): string {
  return line.replace(/IF NOT EXISTS /g, "").replace(/\s*([(),])\s*/g, "$1");
}
