import fs from "node:fs";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { SideThreads } from "../dist/storage/sqlite/side-thread.js";
import { entry, open } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const FIND = { queue: "default", by: { id: 1 } };

/** The threads beside the engine of a database with one job. */
async function threads(keepMs?: number): Promise<{ side: SideThreads; directory: string }> {
  const directory = tempDirectory();
  await open(directory).put([entry("a")], {});
  const side = new SideThreads(directory, keepMs === undefined ? {} : { keepMs });
  onTestFinished(() => side.end());
  return { side, directory };
}

test("quick tasks share a thread, which ends when nobody has asked for a while; the next one starts another", async () => {
  const { side } = await threads(50);
  for (let round = 0; round < 2; round++) {
    expect(side.size).toBe(0);
    const asked = Array.from({ length: 10 }, () => side.quick("find", FIND));
    expect(side.size).toBe(1);
    for (const found of await Promise.all(asked)) expect(found).toMatchObject({ state: "ready" });
    await until(() => side.size === 0);
  }
});

test("a thread that is asked again and again stays", async () => {
  const { side } = await threads(200);
  const end = performance.now() + 600;
  await side.quick("find", FIND);
  while (performance.now() < end) {
    expect(side.size).toBe(1);
    await side.quick("find", FIND);
  }
});

test("a long task has a thread of its own, which ends with it", async () => {
  const { side } = await threads();
  await side.quick("find", FIND);
  const long = side.long("find", FIND);
  expect(side.size).toBe(2);
  expect(await long).toMatchObject({ state: "ready" });
  await until(() => side.size === 1);
});

test("a long task that was aborted before it began is not begun", async () => {
  const { side } = await threads();
  await expect(side.long("find", FIND, { signal: AbortSignal.abort("enough") })).rejects.toBe("enough");
  expect(side.size).toBe(0);
});

test("what a task stumbles over is an error of the storage, and the next task is none the worse", async () => {
  const { side } = await threads();
  const [sick, well] = [
    side.quick("list", { queue: "default", which: { state: "?" as never, limit: 1 } }),
    side.quick("find", FIND),
  ];
  await expect(sick).rejects.toMatchObject({ name: "StorageError", code: "IO", outcome: "failed" });
  expect(await well).toMatchObject({ state: "ready" });
  expect(side.size).toBe(1);
});

test("a thread that cannot be started is an error, of this call only", async () => {
  const directory = path.join(tempDirectory(), "missing");
  const side = new SideThreads(directory);
  await expect(side.quick("find", FIND)).rejects.toMatchObject({ code: "BAD_LOCATION" });
  await open(directory).put([entry("a")], {});
  expect(await side.quick("find", FIND)).toMatchObject({ state: "ready" });
  await side.end();
});

test.runIf(fs.existsSync("/proc/self/fd"))("nothing is left open, however often threads come and go", async () => {
  const { side, directory } = await threads(1);
  for (let round = 0; round < 5; round++) {
    await Promise.all([side.quick("find", FIND), side.long("find", FIND)]);
    await until(() => side.size === 0);
    // SQLite keeps the descriptors of the file; each has its mark.
    expect(descriptorsOf(directory)).toBeGreaterThanOrEqual(descriptorsOf(path.join(directory, "localqueue.db")));
  }
  expect(descriptorsOf(directory)).toBeLessThanOrEqual(3);
  await side.end();
  expect(descriptorsOf(directory)).toBe(1);
});

/** How many descriptors of this process lead to a file. */
function descriptorsOf(target: string): number {
  const { ino, dev } = fs.statSync(target);
  const stats = fs.readdirSync("/proc/self/fd").map((fd) => {
    return fs.statSync(`/proc/self/fd/${fd}`, { throwIfNoEntry: false });
  });
  return stats.filter((stat) => stat?.ino === ino && stat.dev === dev).length;
}

test("closing leaves nothing open, however long the log was at the end", async () => {
  for (let round = 0; round < 5; round++) {
    const directory = tempDirectory();
    const storage = open(directory);
    const large = "x".repeat(200_000);
    await Promise.all(Array.from({ length: 80 }, () => storage.put([entry(large)], {})));
    await storage.close();
    await until(() => !fs.existsSync(path.join(directory, "localqueue.db-wal")), 5000);
  }
});
