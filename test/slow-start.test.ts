import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type * as localqueue from "localqueue";
import { expect, test } from "vitest";
import { tempDirectory } from "./support/temp.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

/** A copy of the package on a machine so busy that the engine's thread takes long to start. */
async function packageOnBusyMachine(startMs: number): Promise<typeof localqueue> {
  const directory = tempDirectory();
  fs.cpSync(path.join(root, "dist"), path.join(directory, "dist"), { recursive: true });
  fs.writeFileSync(path.join(directory, "package.json"), '{ "type": "module" }');
  fs.symlinkSync(path.join(root, "node_modules"), path.join(directory, "node_modules"));
  const thread = path.join(directory, "dist/storage/sqlite/thread.js");
  const pause = `Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${startMs});`;
  const source = fs.readFileSync(thread, "utf8");
  const starts = "run(workerData)";
  if (!source.includes(starts)) throw new Error(`The thread does not start with ${starts}`);
  fs.writeFileSync(thread, source.replace(starts, `${pause}${starts}`));
  return import(pathToFileURL(path.join(directory, "dist/index.js")).href);
}

test("what was accepted before close is committed, however long the storage takes to start", async () => {
  const { SimpleQueue } = await packageOnBusyMachine(2_500);
  const directory = tempDirectory();
  const queue = new SimpleQueue(directory);
  const startedAt = performance.now();
  const puts = [1, 2, 3].map((data) => queue.put(data));
  await queue.close();
  expect(performance.now() - startedAt).toBeGreaterThan(2_000);
  expect((await Promise.all(puts)).map(({ inserted }) => inserted)).toEqual([true, true, true]);
});

test("the time that the storage takes to start is part of what a call waits for a job", async () => {
  const { SimpleQueue } = await packageOnBusyMachine(3_000);
  const queue = new SimpleQueue(tempDirectory());
  const startedAt = performance.now();
  await expect(queue.get({ timeoutMs: 4_000 })).rejects.toMatchObject({ name: "EmptyError" });
  expect(performance.now() - startedAt).toBeGreaterThan(3_990);
  expect(performance.now() - startedAt).toBeLessThan(6_900);
  await queue.close();
});
