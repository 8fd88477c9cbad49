import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import type { BackupOptions, BackupProgress, SimpleQueue } from "localqueue";
import { describe, expect, onTestFinished, test } from "vitest";
import { openDatabase } from "./support/database.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { openQueue } from "./support/queue.ts";
import { Script } from "./support/script.ts";
import { describeSmallDisks, SmallDisk } from "./support/small-disk.ts";
import { rejection } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const ROWS = "SELECT * FROM messages ORDER BY id";

/** A queue with a job in each state, and one that waits for its time. */
async function variedQueue(fsync = false): Promise<{ queue: SimpleQueue; directory: string }> {
  const directory = path.join(tempDirectory(), "source");
  const queue = openQueue({ location: directory, fsync });
  await queue.putMany(["acked", "failed", "held"]);
  await (await queue.get()).ack();
  await (await queue.get()).fail({ lastError: new Error("no"), category: "test" });
  await queue.get();
  await queue.put("known", { jobId: "a known id" });
  await queue.put("later", { delayMs: 3_600_000 });
  return { queue, directory };
}

/** So many more bytes of jobs. */
async function grow(queue: SimpleQueue, bytes: number): Promise<void> {
  const text = "x".repeat(1000);
  for (let left = bytes; left > 0; left -= 1_000_000) await queue.putMany(Array.from({ length: 1000 }, () => text));
}

function destination(): string {
  return path.join(tempDirectory(), "backup");
}

describe("a backup", () => {
  test.each([false, true])("holds one verified file, with fsync: %s", async (fsync) => {
    const { queue } = await variedQueue(fsync);
    const target = destination();
    const report = await queue.backup(target);
    const { size, mode } = statSync(path.join(target, "localqueue.db"));
    expect(report).toEqual({
      schemaVersion: 1,
      destination: target,
      databasePath: path.join(target, "localqueue.db"),
      elapsedMs: expect.any(Number),
      pagesCopied: size / 4096,
      pageCount: size / 4096,
      databaseSizeBytes: size,
      verified: true,
      verificationMode: "full",
      verificationMessages: ["ok"],
    });
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
    expect(readdirSync(target)).toEqual(["localqueue.db"]);
    expect([mode & 0o777, statSync(target).mode & 0o777]).toEqual([0o600, 0o700]);
  });

  test("has every row as it was, with receipts and leases, even when the source is gone", async () => {
    const { queue, directory } = await variedQueue();
    const before = select(directory, ROWS);
    const objects = "SELECT type, name, sql FROM sqlite_schema ORDER BY name";
    const layout = select(directory, objects);
    const sequence = select(directory, "SELECT * FROM sqlite_sequence");
    const target = destination();
    await queue.backup(target);
    await queue.close();
    rmSync(directory, { recursive: true });
    expect(select(target, ROWS)).toEqual(before);
    expect(select(target, objects)).toEqual(layout);
    expect(select(target, "SELECT * FROM sqlite_sequence")).toEqual(sequence);
    expect(select(target, "PRAGMA journal_mode")).toEqual([{ journal_mode: "delete" }]);
    expect(faultsOf(target)).toEqual([]);
  });

  test("can be used by a process that knows nothing of the source", async () => {
    const { queue, directory } = await variedQueue();
    const target = destination();
    await queue.backup(target);
    await queue.close();
    rmSync(directory, { recursive: true });
    const restored = new Script(
      target,
      `const storage = open();
      const [{ id }] = await storage.put([entry("new")], {});
      const claimed = await storage.claim({ limit: 9, leaseMs: 1000, timeoutMs: 0 });
      const payloads = claimed.map(({ payload }) => Buffer.from(payload).toString());
      const again = await storage.put([{ ...entry("known"), jobId: "a known id" }], {});
      print({ id, payloads, again, stats: await storage.stats() });
      await storage.close();`,
    );
    const { code, errors } = await restored.ended();
    expect({ code, errors }).toEqual({ code: 0, errors: "" });
    expect(restored.printed).toEqual([
      {
        id: 6,
        payloads: ['"known"', "new"],
        again: [{ id: 4, inserted: false }],
        stats: { ready: 1, processing: 3, acked: 1, failed: 1 },
      },
    ]);
  });

  test("tells how far it is", async () => {
    const queue = openQueue();
    await grow(queue, 30_000_000);
    const told: BackupProgress[] = [];
    const { pagesCopied } = await queue.backup(destination(), { onProgress: (progress) => told.push(progress) });
    const copying = told.filter(({ phase }) => phase === "copying");
    expect(copying.length).toBeGreaterThan(1);
    expect(copying.map(({ done }) => done)).toEqual(copying.map(({ done }) => done).sort((a, b) => a - b));
    expect(copying.at(-1)).toEqual({ phase: "copying", done: pagesCopied, total: pagesCopied });
    expect(told.slice(copying.length)).toEqual([
      { phase: "verifying", done: 0, total: pagesCopied },
      { phase: "verifying", done: pagesCopied, total: pagesCopied },
    ]);
  });

  test("does not care what is thrown at the news of it", async () => {
    const warned: Error[] = [];
    const listen = (warning: Error): void => void warned.push(warning);
    process.on("warning", listen);
    onTestFinished(() => void process.off("warning", listen));
    const onProgress = (): void => {
      throw new Error("I have seen enough");
    };
    expect((await openQueue().backup(destination(), { onProgress })).verified).toBe(true);
    await until(() => warned.length > 0);
    expect(warned[0]).toMatchObject({ code: "LOCALQUEUE_LISTENER_FAILED" });
  });

  test("never holds a part of a batch, and holds what was committed before", async () => {
    const directory = path.join(tempDirectory(), "source");
    const writers = [1, 2].map(
      (writer) =>
        new Script(
          directory,
          `const storage = open("writer ${writer}");
          let batches = 0, done = false;
          lines().on("line", () => { done = true; });
          while (!done) {
            await storage.put(Array.from({ length: 50 }, () => entry(String(batches))), {});
            if (++batches % 20 === 0) print(batches);
          }
          await storage.close();
          process.exit();`,
        ),
    );
    const queue = openQueue({ location: directory });
    await until(() => writers.every(({ printed }) => printed.length > 0));
    for (let round = 0; round < 4; round++) {
      const target = destination();
      const committed = writers.map(({ printed }) => Number(printed.at(-1)));
      await queue.backup(target);
      const parts = select(target, "SELECT queue, payload FROM messages GROUP BY queue, payload HAVING count(*) <> 50");
      expect(parts).toEqual([]);
      const counts = select(target, "SELECT count(*) / 50 AS batches FROM messages GROUP BY queue ORDER BY queue");
      for (const [index, { batches }] of counts.entries()) {
        expect(Number(batches)).toBeGreaterThanOrEqual(committed[index] as number);
      }
      expect(faultsOf(target)).toEqual([]);
    }
    for (const writer of writers) writer.tell("stop");
    for (const writer of writers) expect((await writer.ended()).code).toBe(0);
  });

  test("takes a relative path, and a URL", async () => {
    const { queue } = await variedQueue();
    const target = path.relative(process.cwd(), path.join(tempDirectory(), "Sicherung äöü"));
    const { destination: told, databasePath } = await queue.backup(target);
    expect({ told, databasePath }).toEqual({ told: target, databasePath: path.join(target, "localqueue.db") });
    expect(existsSync(databasePath)).toBe(true);
    const url = new URL(`file://${destination()}`);
    expect((await queue.backup(url)).destination).toBe(url.pathname);
  });
});

describe("a place that cannot take a backup is refused, and nothing changed", () => {
  test("a directory or file that exists already", async () => {
    const { queue } = await variedQueue();
    const target = destination();
    mkdirSync(target);
    writeFileSync(path.join(target, "mine"), "precious");
    expect(await rejection(queue.backup(target))).toMatchObject({
      name: "StorageError",
      code: "BAD_LOCATION",
      outcome: "failed",
      message: expect.stringContaining("it exists already"),
    });
    expect(readFileSync(path.join(target, "mine"), "utf8")).toBe("precious");
    const file = path.join(target, "mine");
    expect(await rejection(queue.backup(file))).toMatchObject({ code: "BAD_LOCATION" });
    expect(readFileSync(file, "utf8")).toBe("precious");
  });

  test("the queue's own directory, or one inside it, by whatever name", async () => {
    const { queue, directory } = await variedQueue();
    const before = readdirSync(directory);
    const link = path.join(tempDirectory(), "link");
    symlinkSync(directory, link);
    const places = [directory, path.join(directory, "inside"), link, path.join(link, "inside"), `${directory}/./x/..`];
    for (const place of [...places, path.join(directory, "localqueue.db")]) {
      const error = await rejection(queue.backup(place));
      expect(error).toMatchObject({ code: "BAD_LOCATION", message: expect.stringContaining("own directory") });
    }
    expect(readdirSync(directory)).toEqual(before);
  });

  test("one whose parent does not exist, or is a file", async () => {
    const { queue, directory } = await variedQueue();
    const missing = path.join(tempDirectory(), "missing");
    expect(await rejection(queue.backup(path.join(missing, "backup")))).toMatchObject({
      code: "BAD_LOCATION",
      message: expect.stringContaining(`the directory ${missing} must exist`),
    });
    expect(existsSync(missing)).toBe(false);
    const file = path.join(path.dirname(directory), "file");
    writeFileSync(file, "");
    const error = await rejection(queue.backup(path.join(file, "backup")));
    expect(error).toMatchObject({ code: "BAD_LOCATION", message: expect.stringContaining("is not a directory") });
  });

  test("of two that want the same place, one gets it", async () => {
    const { queue, directory } = await variedQueue();
    const target = destination();
    const results = await Promise.allSettled([
      queue.backup(target),
      openQueue({ location: directory, name: "b" }).backup(target),
    ]);
    expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(readdirSync(target)).toEqual(["localqueue.db"]);
    expect(faultsOf(target)).toEqual([]);
  });

  test.each([
    ["", RangeError],
    ["a\0b", RangeError],
    [5, TypeError],
    [undefined, TypeError],
    [new URL("https://example.com/backup"), RangeError],
  ])("misuse: %j", async (place, kind) => {
    await expect(openQueue().backup(place as string)).rejects.toThrow(kind);
  });

  test.each([{ onProgress: 5 }, { onprogress: () => {} }])("misuse of options: %j", async (options) => {
    await expect(openQueue().backup(destination(), options as BackupOptions)).rejects.toThrow(TypeError);
  });

  test("a closed queue", async () => {
    const queue = openQueue();
    await queue.close();
    const target = destination();
    expect(await rejection(queue.backup(target))).toMatchObject({ code: "CLOSED" });
    expect(existsSync(target)).toBe(false);
  });
});

describe("a backup that fails leaves nothing behind", () => {
  test("because the source is damaged", async () => {
    const { queue, directory } = await variedQueue();
    await grow(queue, 2_000_000);
    await queue.close();
    const file = path.join(directory, "localqueue.db");
    const bytes = readFileSync(file);
    bytes.fill(0xa5, bytes.length - 100 * 4096, bytes.length - 90 * 4096);
    writeFileSync(file, bytes);
    const target = destination();
    const error = await rejection(openQueue({ location: directory }).backup(target));
    expect(error).toMatchObject({ code: "CORRUPT", message: expect.stringContaining("checkIntegrity") });
    expect(existsSync(target)).toBe(false);
  });

  test("because the queue is closed; other queues on the file go on", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    const other = openQueue({ location: directory, name: "other" });
    await grow(queue, 40_000_000);
    const target = destination();
    let begun = false;
    const onProgress = (): void => {
      begun = true;
    };
    const failing = rejection(queue.backup(target, { onProgress }));
    await until(() => begun);
    await queue.close();
    expect(await failing).toMatchObject({ name: "QueueClosedError", code: "CLOSED" });
    expect(existsSync(target)).toBe(false);
    await other.put("still here");
    expect((await other.backup(target)).verified).toBe(true);
  });

  test("because the process exits", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    await grow(queue, 40_000_000);
    const target = destination();
    const leaving = new Script(
      directory,
      `const onProgress = () => process.exit(7);
      await open().backup({ destination: ${JSON.stringify(target)}, onProgress });`,
    );
    const { code, signal } = await leaving.ended();
    expect({ code, signal }).toEqual({ code: 7, signal: null });
    expect(existsSync(target)).toBe(false);
  });

  test("unless it is killed: then the source is as it was, and another backup, elsewhere, succeeds", async () => {
    const directory = tempDirectory();
    const queue = openQueue({ location: directory });
    await grow(queue, 40_000_000);
    const target = destination();
    const killed = new Script(
      directory,
      `const onProgress = () => process.kill(process.pid, "SIGKILL");
      await open().backup({ destination: ${JSON.stringify(target)}, onProgress });`,
    );
    expect((await killed.ended()).signal).toBe("SIGKILL");
    expect(readdirSync(target)).toContain(".localqueue.db.incomplete");
    const again = await rejection(queue.backup(target));
    expect(again).toMatchObject({ code: "BAD_LOCATION", message: expect.stringContaining("was not finished") });
    await queue.put("after");
    expect(faultsOf(directory)).toEqual([]);
    const elsewhere = destination();
    await queue.backup(elsewhere);
    const count = "SELECT count(*) AS jobs FROM messages";
    expect(select(elsewhere, count)).toEqual(select(directory, count));
  });
});

describeSmallDisks("a backup onto a full disk", () => {
  test("is removed again, and succeeds when there is space; the queue does not notice", async () => {
    const disk = new SmallDisk("tmpfs", 32);
    const queue = openQueue();
    await grow(queue, 8_000_000);
    const target = path.join(disk.directory, "backup");
    disk.fill(4_000_000);
    expect(await rejection(queue.backup(target))).toMatchObject({ code: "DISK_FULL", outcome: "failed" });
    expect(existsSync(target)).toBe(false);
    await queue.put("more");
    disk.clear();
    expect((await queue.backup(target)).verified).toBe(true);
    expect(readdirSync(target)).toEqual(["localqueue.db"]);
  });
});

test("a queue can be restored from a backup as the documentation says", async () => {
  const { queue, directory } = await variedQueue();
  const target = destination();
  await queue.backup(target);
  await queue.put("lost by the restore");
  await queue.close();
  rmSync(directory, { recursive: true });
  execFileSync("cp", ["-R", target, directory]);
  const restored = openQueue({ location: directory });
  expect(await restored.stats()).toEqual({ ready: 2, processing: 1, acked: 1, failed: 1 });
  const database = openDatabase(target);
  expect(database.prepare("SELECT count(*) AS jobs FROM messages").get()).toEqual({ jobs: 5 });
  database.close();
});
