import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type * as localqueue from "localqueue";
import { expect, onTestFinished, test } from "vitest";
import { openDatabase } from "./support/database.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";
import { listenTo, start } from "./support/worker.ts";

const LEASE_MS = 300;
const root = fileURLToPath(new URL("..", import.meta.url));

interface SlowPackage {
  readonly package: typeof localqueue;
  /** While this file exists, a COMMIT does not return, though it is done. */
  readonly stall: string;
}

/** A copy of the package on a disk that stalls when it is told to. */
async function packageOnSlowDisk(): Promise<SlowPackage> {
  const directory = tempDirectory();
  const stall = path.join(directory, "stall");
  fs.cpSync(path.join(root, "dist"), path.join(directory, "dist"), { recursive: true });
  fs.writeFileSync(path.join(directory, "package.json"), '{ "type": "module" }');
  fs.symlinkSync(path.join(root, "node_modules"), path.join(directory, "node_modules"));
  fs.appendFileSync(
    path.join(directory, "dist/storage/sqlite/connection.js"),
    `
    import { existsSync as isStalled } from "node:fs";
    const { commit } = Connection.prototype;
    Connection.prototype.commit = function () {
      commit.call(this);
      const cell = new Int32Array(new SharedArrayBuffer(4));
      while (isStalled(${JSON.stringify(stall)})) Atomics.wait(cell, 0, 0, 5);
    };`,
  );
  return { package: await import(pathToFileURL(path.join(directory, "dist/index.js")).href), stall };
}

interface Scene {
  readonly queue: localqueue.SimpleQueue<string>;
  readonly Worker: typeof localqueue.Worker;
  /** Puts a job whose claim takes so long that another process has it by then. */
  readonly putForAnother: () => Promise<void>;
}

async function open(): Promise<Scene> {
  const {
    package: { SimpleQueue, Worker },
    stall,
  } = await packageOnSlowDisk();
  const directory = tempDirectory();
  const queue = new SimpleQueue<string>(directory, { leaseMs: LEASE_MS });
  onTestFinished(() => queue.close());
  await queue.stats();
  const putForAnother = async (): Promise<void> => {
    fs.writeFileSync(stall, "");
    const put = queue.put("for another");
    const database = openDatabase(directory);
    database.exec("PRAGMA busy_timeout = 5000");
    const take = database.prepare(
      "UPDATE messages SET receipt = 'of another process', lease_until = :end WHERE status = 1 AND lease_until <= :now",
    );
    await until(() => take.run({ now: Date.now(), end: Date.now() + 60_000 }).changes === 1);
    database.close();
    fs.rmSync(stall);
    await put;
  };
  return { queue, Worker, putForAnother };
}

test.each([
  ["for ever", {}],
  ["for a while", { timeoutMs: 60_000 }],
])("a get that waits %s waits on when its job was taken before it could be handed out", async (_, wait) => {
  const { queue, putForAnother } = await open();
  const waiting = queue.get(wait);
  waiting.catch(() => {}); // awaited below
  await putForAnother();
  await queue.put("next");
  const job = await waiting;
  expect(job.data).toBe("next");
  await job.ack();
  expect(await queue.stats()).toEqual({ ready: 0, processing: 1, acked: 1, failed: 0 });
});

test("a worker goes on when its job was taken before it could be handed out", async () => {
  const { queue, Worker, putForAnother } = await open();
  const worker = new Worker(queue, () => {});
  const told = listenTo(worker);
  let ended = false;
  void start(worker).then(() => {
    ended = true;
  });
  await putForAnother();
  await queue.put("next");
  await until(() => ended || told.length > 0);
  expect([ended, told]).toEqual([false, [["job:acked", "next"]]]);
});
