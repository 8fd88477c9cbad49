import fs from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker as Thread } from "node:worker_threads";
import { SimpleQueue } from "localqueue";
import { expect, onTestFinished, test } from "vitest";
import { Connection } from "../dist/storage/sqlite/connection.js";
import { type Database, loadDriver } from "../dist/storage/sqlite/driver.js";
import { faultsOf, select } from "./support/inspect.ts";
import { Program } from "./support/program.ts";
import { tempDirectory } from "./support/temp.ts";

test("processes that open and close the same database all the time are never in each other's way", async () => {
  const location = tempDirectory();
  const times = 15;
  const programs = ["a", "b", "c"].map((name) => new Program("open-and-close.mjs", { location, name, times }));
  for (const program of programs) {
    expect(await program.ends(60_000)).toEqual({ code: 0, signal: null, stderr: "" });
  }
  const done = programs.flatMap((program) => program.said("done").map(({ data }) => data));
  expect(new Set(done).size).toBe(3 * times);
  expect(select(location, "SELECT status, attempts, count(*) AS jobs FROM messages GROUP BY 1, 2")).toEqual([
    { status: 2, attempts: 1, jobs: 3 * times },
  ]);
  expect(faultsOf(location)).toEqual([]);
}, 90_000);

test("a thread that is terminated in the middle of its puts leaves what was acknowledged, and no lock", async () => {
  const location = tempDirectory();
  const acknowledged: number[] = [];
  for (let round = 0; round < 4; round++) {
    const thread = new Thread(new URL("./programs/endless-thread.mjs", import.meta.url), {
      workerData: { location },
      execArgv: [],
    });
    onTestFinished(async () => void (await thread.terminate()));
    const started = new Promise<void>((resolve, reject) => {
      thread.on("message", (ids: number[]) => {
        acknowledged.push(...ids);
        resolve();
      });
      thread.on("error", reject);
    });
    await started;
    await sleep(Math.random() * 30); // at any moment
    await thread.terminate();
    const queue = new SimpleQueue(location);
    acknowledged.push((await queue.put("after", { timeoutMs: 15_000 })).id);
    await queue.close();
  }
  const ids = new Set(select(location, "SELECT id FROM messages").map(({ id }) => id));
  expect(acknowledged.filter((id) => !ids.has(id))).toEqual([]);
  expect(new Set(acknowledged).size).toBe(acknowledged.length);
  expect(faultsOf(location)).toEqual([]);
}, 60_000);

test("a connection that was opened anew does not take its new write-ahead log for somebody else's", () => {
  const directory = tempDirectory();
  const driver = loadDriver();
  const open = (file: string): Database => {
    const db = driver.open(file);
    const close = (): void => {
      db.close();
      // Other files come between: else the next write-ahead log may be given the inode of the former one.
      for (let n = 0; n < 8; n++) fs.writeFileSync(path.join(directory, `${performance.now()}.${n}`), "");
    };
    return { exec: db.exec, prepare: db.prepare, copyTo: db.copyTo, close, inTransaction: false };
  };
  const connection = new Connection({ directory, driver: { ...driver, open } });
  const wal = (): number => fs.statSync(`${connection.file}-wal`).ino;
  const commit = (): void => {
    expect(connection.begin(false, 50)).toBe(true);
    connection.statements.recordEngine.run({ engine: 1, number: 1 });
    connection.commit();
  };
  commit();
  const former = wal();
  // What the engine does after an input/output error.
  connection.close();
  commit();
  expect(wal()).not.toBe(former);
  connection.close();
});
