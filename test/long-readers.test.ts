import { statSync } from "node:fs";
import path from "node:path";
import type { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf } from "./support/inspect.ts";
import { Program } from "./support/program.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const MIB = 1024 * 1024;
/** 64 MiB, and a tenth more. */
const BOUND = 1.1 * 64 * MIB;

function logSize(directory: string): number {
  return statSync(path.join(directory, "localqueue.db-wal")).size;
}

/** Writes until the log is longer than the bound, and by how much it takes for another reader to see. */
async function writeTooMuch(queue: SimpleQueue, directory: string): Promise<void> {
  const batch = Array.from({ length: 100 }, () => "x".repeat(50_000));
  while (logSize(directory) < BOUND + 10 * MIB) await queue.putMany(batch);
}

test("a log that a long reader made grow shrinks when it ends, although nobody writes any more", async () => {
  const directory = tempDirectory();
  const queue = openQueue({ location: directory });
  await queue.put("a job");
  const reader = new Program("hold-read.mjs", { location: directory });
  await reader.hears("reading");
  await writeTooMuch(queue, directory);
  await reader.end();
  await until(() => logSize(directory) <= BOUND, 5000);
  expect(faultsOf(directory)).toEqual([]);
}, 60_000);

test("so it does when the reader is killed", async () => {
  const directory = tempDirectory();
  const queue = openQueue({ location: directory });
  await queue.put("a job");
  const reader = new Program("hold-read.mjs", { location: directory });
  await reader.hears("reading");
  await writeTooMuch(queue, directory);
  await reader.kill();
  await until(() => logSize(directory) <= BOUND, 5000);
}, 60_000);

test("while there are always readers, though none for long, writers go on and the log stays bounded", async () => {
  const directory = tempDirectory();
  const queue = openQueue({ location: directory });
  const batch = Array.from({ length: 100 }, () => "x".repeat(50_000));
  await queue.putMany(batch);
  const readers = [
    new Program("short-reads.mjs", { location: directory }),
    new Program("short-reads.mjs", { location: directory }),
  ];
  for (const reader of readers) await reader.hears("reading");
  let longest = 0;
  for (let n = 0; n < 120; n++) {
    await queue.putMany(batch);
    longest = Math.max(longest, logSize(directory));
  }
  for (const reader of readers) await reader.end();
  await until(() => logSize(directory) <= BOUND, 5000);
  // 600 MB went through it.
  expect(longest).toBeLessThan(5 * BOUND);
}, 60_000);
