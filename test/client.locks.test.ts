import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import type { Storage } from "../dist/storage/storage.js";
import { lockDatabase } from "./support/database.ts";
import { readRows } from "./support/engine-harness.ts";
import { Script } from "./support/script.ts";
import { claimAll, entry, open, rejection, textOf } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const BUSY = { name: "StorageError", code: "BUSY", outcome: "failed" };

/** A storage with so many jobs in it, and a lock on its file that somebody else holds. */
async function openLocked(jobs = 0): Promise<{ storage: Storage; directory: string; unlock: () => void }> {
  const directory = tempDirectory();
  const storage = open(directory);
  await storage.stats();
  if (jobs > 0)
    await storage.put(
      Array.from({ length: jobs }, (_, i) => entry(`job ${i}`)),
      {},
    );
  const unlockOnce = lockDatabase(directory);
  let locked = true;
  const unlock = (): void => {
    if (locked) unlockOnce();
    locked = false;
  };
  onTestFinished(unlock);
  return { storage, directory, unlock };
}

/** What the promise gave or rejected with, how long it took, and how often the event loop turned meanwhile. */
async function measure(promise: Promise<unknown>): Promise<{ outcome: unknown; tookMs: number; turns: number }> {
  const started = performance.now();
  let turns = 0;
  const timer = setInterval(() => turns++, 5);
  const outcome = await promise.catch((error: unknown) => error);
  clearInterval(timer);
  return { outcome, tookMs: performance.now() - started, turns };
}

function stored(directory: string): string[] {
  const rows = readRows(path.join(directory, "localqueue.db"), "SELECT payload FROM messages ORDER BY id");
  return rows.map(({ payload }) => Buffer.from(payload as Uint8Array).toString());
}

describe("while somebody else holds the lock", () => {
  test("a put gives up after its time-out, and the event loop is never blocked", async () => {
    const { storage, directory, unlock } = await openLocked();
    const { outcome, tookMs, turns } = await measure(storage.put([entry("job")], { timeoutMs: 400 }));
    expect(outcome).toMatchObject(BUSY);
    expect(tookMs).toBeGreaterThanOrEqual(395);
    expect(tookMs).toBeLessThan(2000);
    expect(turns).toBeGreaterThan(10);
    unlock();
    await storage.put([entry("next")], {});
    expect(stored(directory)).toEqual(["next"]);
  });

  test("a put that must not wait makes one attempt", async () => {
    const { storage, unlock } = await openLocked();
    const { outcome, tookMs } = await measure(storage.put([entry("job")], { timeoutMs: 0 }));
    expect(outcome).toMatchObject(BUSY);
    expect(tookMs).toBeLessThan(1000);
    unlock();
    expect(await storage.put([entry("job")], { timeoutMs: 0 })).toMatchObject([{ inserted: true }]);
  });

  test("puts wait for it, and are committed in their order", async () => {
    const { storage, directory, unlock } = await openLocked();
    const payloads = Array.from({ length: 50 }, (_, i) => `job ${i}`);
    const puts = payloads.map((payload) => storage.put([entry(payload)], {}));
    let settled = 0;
    for (const put of puts) void put.finally(() => settled++);
    await storage.stats(); // which the engine hears of after the puts, and answers without the lock
    expect(settled).toBe(0);
    unlock();
    await Promise.all(puts);
    expect(stored(directory)).toEqual(payloads);
  });

  test("a claim that does not wait answers at once when the queue is empty", async () => {
    const { storage } = await openLocked();
    const { outcome, tookMs } = await measure(claimAll(storage));
    expect(outcome).toEqual([]);
    expect(tookMs).toBeLessThan(500);
  });

  test("a claim that does not wait gives up after 50 ms when there are jobs", async () => {
    const { storage, unlock } = await openLocked(1);
    const { outcome, tookMs } = await measure(claimAll(storage));
    expect(outcome).toMatchObject(BUSY);
    expect(tookMs).toBeGreaterThanOrEqual(40);
    expect(tookMs).toBeLessThan(500);
    unlock();
    const [delivery] = await claimAll(storage);
    expect(delivery).toMatchObject({ attempt: 1 });
  });

  test("a claim that waits is served when the lock is free, or gives up after its time-out", async () => {
    const { storage, unlock } = await openLocked(1);
    const claim = { limit: 1, leaseMs: 60_000 };
    const impatient = measure(storage.claim({ ...claim, timeoutMs: 300 }));
    const patient = storage.claim({ ...claim, timeoutMs: 20_000 });
    const { outcome, tookMs } = await impatient;
    expect(outcome).toMatchObject(BUSY);
    expect(tookMs).toBeGreaterThanOrEqual(295);
    unlock();
    expect((await patient).map(textOf)).toEqual(["job 0"]);
  });

  test("a claim that waits on an empty queue ends empty", async () => {
    const { storage } = await openLocked();
    const { outcome, tookMs } = await measure(storage.claim({ limit: 1, leaseMs: 60_000, timeoutMs: 300 }));
    expect(outcome).toEqual([]);
    expect(tookMs).toBeGreaterThanOrEqual(295);
  });

  test("counts are still read", async () => {
    const { storage } = await openLocked(3);
    expect(await storage.stats()).toEqual({ ready: 3, processing: 0, acked: 0, failed: 0 });
  });

  test("counts are read even by a process that opens the file now", async () => {
    const { directory } = await openLocked(3);
    const program = new Script(
      directory,
      "const storage = open(); print(await storage.stats()); await storage.close();",
    );
    expect(await until(() => program.printed[0])).toEqual({ ready: 3, processing: 0, acked: 0, failed: 0 });
  });

  test("close gives up on what was accepted after half a second, and resolves", async () => {
    const { storage, directory, unlock } = await openLocked();
    const put = measure(storage.put([entry("job")], {}));
    await storage.stats(); // so the engine has got the put before
    const many = Array.from({ length: 3000 }, () => rejection(storage.put([entry("job")], {})));
    const close = measure(storage.close());
    const { outcome, tookMs } = await put;
    expect(outcome).toMatchObject(BUSY);
    expect(tookMs).toBeGreaterThan(400);
    expect(tookMs).toBeLessThan(3000);
    for (const error of await Promise.all(many)) expect(error).toMatchObject(BUSY);
    expect((await close).tookMs).toBeLessThan(4000);
    unlock();
    expect(stored(directory)).toEqual([]);
  });

  test("close commits what was accepted if the lock is free in time", async () => {
    const { storage, directory, unlock } = await openLocked();
    const put = storage.put([entry("job")], {});
    const close = storage.close();
    setTimeout(unlock, 100);
    expect(await put).toMatchObject([{ inserted: true }]);
    await close;
    expect(stored(directory)).toEqual(["job"]);
  });

  test("close ends waiting claims at once", async () => {
    const { storage } = await openLocked(1);
    const claim = rejection(storage.claim({ limit: 1, leaseMs: 60_000 }));
    await until(() => storage.stats());
    const { tookMs } = await measure(storage.close());
    expect(await claim).toMatchObject({ name: "QueueClosedError", code: "CLOSED" });
    expect(tookMs).toBeLessThan(1000);
  });
});

describe("while the file cannot even be opened", () => {
  /** A database in the middle of a transaction that keeps everybody out. */
  function openExclusively(directory: string): () => void {
    mkdirSync(directory, { recursive: true });
    const database = loadDriver().open(path.join(directory, "localqueue.db"));
    database.exec("BEGIN EXCLUSIVE; CREATE TABLE something (x)");
    return () => {
      database.exec("ROLLBACK");
      database.close();
    };
  }

  test("a put waits a second for it at least, and its time-out at most", async () => {
    const directory = path.join(tempDirectory(), "new");
    const unlock = openExclusively(directory);
    const storage = open(directory);
    const { outcome, tookMs } = await measure(storage.put([entry("job")], { timeoutMs: 100 }));
    expect(outcome).toMatchObject(BUSY);
    expect(tookMs).toBeLessThan(4000);
    unlock();
    expect(await storage.put([entry("job")], {})).toMatchObject([{ id: 1, inserted: true }]);
  });

  test("close ends the attempt", async () => {
    const directory = path.join(tempDirectory(), "new");
    const unlock = openExclusively(directory);
    const storage = open(directory);
    const put = measure(storage.put([entry("job")], {}));
    const { tookMs } = await measure(storage.close());
    expect(tookMs).toBeLessThan(4000);
    expect((await put).outcome).toMatchObject(BUSY);
    unlock();
  });
});

describe("an abort", () => {
  const reason = new Error("no longer wanted");

  test("before the call rejects with its reason, and nothing is stored", async () => {
    const directory = tempDirectory();
    const storage = open(directory);
    const signal = AbortSignal.abort(reason);
    expect(await rejection(storage.put([entry("job")], { signal }))).toBe(reason);
    expect(await rejection(storage.claim({ limit: 1, leaseMs: 1000, signal }))).toBe(reason);
    await storage.put([entry("next")], {});
    expect(stored(directory)).toEqual(["next"]);
  });

  test("in the same turn withdraws what was not sent yet", async () => {
    const directory = tempDirectory();
    const storage = open(directory);
    await storage.stats();
    const controller = new AbortController();
    const puts = [
      storage.put([entry("a")], {}),
      rejection(storage.put([entry("b")], controller)),
      storage.put([entry("c")], {}),
    ];
    controller.abort(reason);
    expect((await Promise.all(puts))[1]).toBe(reason);
    expect(stored(directory)).toEqual(["a", "c"]);
  });

  test("while the lock is somebody else's withdraws a put at once, wherever it waits", async () => {
    const { storage, directory, unlock } = await openLocked();
    const controllers = Array.from({ length: 6 }, () => new AbortController());
    const puts: Promise<unknown>[] = [];
    for (const [i, { signal }] of controllers.entries()) {
      // Each in a turn of its own: the first ones travel to the engine, the last ones wait here.
      puts.push(storage.put([entry(`job ${i}`)], { signal }).catch((error: unknown) => error));
      await new Promise(setImmediate);
    }
    for (const i of [0, 2, 5]) controllers[i]?.abort(reason);
    const aborted = await measure(Promise.all([puts[0], puts[2], puts[5]]));
    expect(aborted.outcome).toEqual([reason, reason, reason]);
    expect(aborted.tookMs).toBeLessThan(2000);
    unlock();
    await Promise.all(puts);
    expect(stored(directory)).toEqual(["job 1", "job 3", "job 4"]);
  });

  test("after a put was committed changes nothing", async () => {
    const directory = tempDirectory();
    const storage = open(directory);
    const controller = new AbortController();
    expect(await storage.put([entry("job")], controller)).toMatchObject([{ inserted: true }]);
    controller.abort(reason);
    await storage.stats();
    expect(stored(directory)).toEqual(["job"]);
  });

  test("that comes too late for a claim gives the job back, and counts no delivery", async () => {
    const directory = tempDirectory();
    const storage = open(directory);
    await storage.put([entry("job")], {});
    for (let round = 0; round < 5; round++) {
      const controller = new AbortController();
      const claim = rejection(storage.claim({ limit: 1, leaseMs: 60_000, signal: controller.signal }));
      await Promise.resolve(); // now it is on its way
      const end = performance.now() + 100;
      while (performance.now() < end); // the engine claims meanwhile, but its answer is not read yet
      controller.abort(reason);
      expect(await claim).toBe(reason);
      expect(await storage.stats()).toMatchObject({ ready: 1, processing: 0 });
    }
    const [delivery] = await claimAll(storage);
    expect(delivery).toMatchObject({ attempt: 1 });
  });
});

test("a lock that a killed process held is free at once", async () => {
  const directory = tempDirectory();
  const storage = open(directory);
  await storage.stats();
  const driver = new URL("../dist/storage/sqlite/driver.js", import.meta.url);
  const program = `
    import { loadDriver } from ${JSON.stringify(driver.href)};
    const database = loadDriver().open(${JSON.stringify(path.join(directory, "localqueue.db"))});
    database.exec("BEGIN IMMEDIATE");
    process.stdout.write("locked");
    setInterval(() => {}, 1000);`;
  const child: ChildProcess = spawn(process.execPath, ["--input-type=module", "--eval", program]);
  onTestFinished(() => void child.kill("SIGKILL"));
  if (child.stdout === null) throw new Error("no output");
  await once(child.stdout, "data");
  const put = storage.put([entry("job")], {});
  expect(await rejection(storage.put([entry("job")], { timeoutMs: 100 }))).toMatchObject(BUSY);
  child.kill("SIGKILL");
  const { tookMs } = await measure(put);
  expect(tookMs).toBeLessThan(2000);
  expect(stored(directory)).toEqual(["job"]);
});
