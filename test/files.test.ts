import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { openStorage } from "../dist/storage/location.js";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import { judgeFilesystem } from "../dist/storage/sqlite/files.js";
import type { Storage } from "../dist/storage/storage.js";
import { LEASE_MS, PATIENT, put, take, takeOne } from "./contract/jobs.ts";
import { runModule } from "./support/child.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

describe("a location", () => {
  test("is created with its parents", async () => {
    const directory = path.join(tempDirectory(), "a", "b", "c");
    await put(open(directory));
    expect(fs.readdirSync(directory)).toContain("localqueue.db");
  });

  test("may be a file: URL", async () => {
    const directory = path.join(tempDirectory(), "with space");
    const storage = openStorage(new URL(`file://${encodeURI(directory)}`), { queue: "default", fsync: undefined });
    await put(storage);
    await storage.close();
    expect(fs.readdirSync(directory)).toEqual(["localqueue.db", "localqueue.reserve"]);
  });

  test("is not touched before the first operation", async () => {
    const directory = path.join(tempDirectory(), "later");
    await open(directory).close();
    expect(fs.existsSync(directory)).toBe(false);
  });

  test.each([
    ["is a file", "taken", (directory: string) => fs.writeFileSync(path.join(directory, "taken"), "mine")],
    ["is below a file", "taken/below", (directory: string) => fs.writeFileSync(path.join(directory, "taken"), "mine")],
    ["holds a directory where the file belongs", "", (d: string) => fs.mkdirSync(path.join(d, "localqueue.db"))],
    [
      "is a link to nowhere",
      "link",
      (directory: string) => fs.symlinkSync("/nowhere/at/all", path.join(directory, "link")),
    ],
  ])("that %s is refused with its path", async (_, name, prepare) => {
    const parent = tempDirectory();
    prepare(parent);
    const directory = path.join(parent, name);
    const storage = open(directory);
    for (const call of [() => put(storage), () => take(storage), () => storage.stats()]) {
      await expect(call()).rejects.toMatchObject({
        name: "StorageError",
        code: "BAD_LOCATION",
        outcome: "failed",
        message: expect.stringContaining(directory),
      });
    }
    if (name.startsWith("taken")) expect(fs.readFileSync(path.join(parent, "taken"), "utf8")).toBe("mine");
  });

  test("that was refused can be used as soon as what was in the way is gone", async () => {
    const directory = path.join(tempDirectory(), "taken");
    fs.writeFileSync(directory, "mine");
    const storage = open(directory);
    await expect(put(storage)).rejects.toMatchObject({ code: "BAD_LOCATION" });
    fs.rmSync(directory);
    expect(await put(storage)).toBe(1);
  });
});

describe("a location without the permission to write", () => {
  /** Opens as somebody without privileges; resolves to the error. The library is loaded before they are given up. */
  function openUnprivileged(directory: string): Promise<unknown> {
    return runModule(`
      import { Connection } from "dist/storage/sqlite/connection.js";
      import { loadDriver } from "dist/storage/sqlite/driver.js";
      const driver = loadDriver();
      if (process.getuid() === 0) {
        process.setgroups([]);
        process.setgid(65534);
        process.setuid(65534);
      }
      let result = {};
      try {
        new Connection({ directory: ${JSON.stringify(directory)}, driver, cancelled: () => true }).close();
      } catch ({ name, code, message, outcome }) {
        result = { name, code, message, outcome };
      }
      console.log(JSON.stringify(result));
    `);
  }

  /** A directory with a database in it, both with the given modes. */
  async function prepared(directoryMode: number, fileMode: number | undefined): Promise<string> {
    const parent = tempDirectory();
    fs.chmodSync(parent, 0o755);
    const directory = path.join(parent, "queue");
    fs.mkdirSync(directory);
    if (fileMode !== undefined) {
      const storage = open(directory);
      await put(storage);
      await storage.close();
      fs.chmodSync(path.join(directory, "localqueue.db"), fileMode);
    }
    fs.chmodSync(directory, directoryMode);
    onTestFinished(() => fs.chmodSync(directory, 0o755));
    return directory;
  }

  test.each([
    ["the directory, in which there is no database yet,", 0o555, undefined],
    ["the directory, in which there is a database,", 0o555, 0o666],
    ["the directory, which cannot even be searched,", 0o000, 0o666],
    ["the file, which can be read,", 0o777, 0o444],
    ["the file, which cannot even be read,", 0o777, 0o000],
  ])("(to %s) is refused as read-only, with its path", async (_, directoryMode, fileMode) => {
    const directory = await prepared(directoryMode, fileMode);
    expect(await openUnprivileged(directory)).toEqual({
      name: "StorageError",
      code: "READ_ONLY",
      outcome: "failed",
      message: expect.stringContaining(directory),
    });
  });

  test("(to the parent of what is to be created) is refused as read-only, with its path", async () => {
    const directory = path.join(await prepared(0o555, undefined), "sub", "directory");
    expect(await openUnprivileged(directory)).toMatchObject({
      code: "READ_ONLY",
      message: expect.stringContaining(directory),
    });
  });

  test("(to the -wal and -shm that somebody else left behind) is refused as read-only, with its path", async () => {
    const directory = await prepared(0o777, 0o666);
    for (const suffix of ["-wal", "-shm"]) {
      fs.writeFileSync(path.join(directory, `localqueue.db${suffix}`), "", { mode: 0o400 });
    }
    expect(await openUnprivileged(directory)).toMatchObject({
      code: "READ_ONLY",
      message: expect.stringContaining(directory),
    });
  });

  test("is no longer refused once there is permission", async () => {
    expect(await openUnprivileged(await prepared(0o777, 0o666))).toEqual({});
  });
});

describe.each([0o022, 0o000, 0o077])("with the umask %o", (mask) => {
  let former = 0;
  beforeEach(() => {
    former = process.umask(mask);
  });
  afterEach(() => {
    process.umask(former);
  });

  test("what we create is for the owner only", async () => {
    const parent = tempDirectory();
    const directory = path.join(parent, "a", "b");
    const storage = open(directory);
    await put(storage);
    await until(() => fs.statSync(path.join(directory, "localqueue.reserve"), { throwIfNoEntry: false })?.size);
    expect(modes(parent, ["a", "a/b"])).toEqual({ a: "700", "a/b": "700" });
    expect(modes(directory, fs.readdirSync(directory))).toEqual({
      "localqueue.db": "600",
      "localqueue.db-shm": "600",
      "localqueue.db-wal": "600",
      "localqueue.reserve": "600",
    });
  });

  test("what was there keeps its permissions, and all else gets the file's", async () => {
    const directory = tempDirectory();
    fs.chmodSync(directory, 0o750);
    fs.writeFileSync(path.join(directory, "localqueue.db"), "");
    fs.chmodSync(path.join(directory, "localqueue.db"), 0o640);
    await put(open(directory));
    await until(() => fs.statSync(path.join(directory, "localqueue.reserve"), { throwIfNoEntry: false })?.size);
    expect(modes(directory, [".", ...fs.readdirSync(directory)])).toEqual({
      ".": "750",
      "localqueue.db": "640",
      "localqueue.db-shm": "640",
      "localqueue.db-wal": "640",
      "localqueue.reserve": "640",
    });
  });
});

describe("the file system", () => {
  test.each([
    ["ext4", 0xef53, undefined],
    ["tmpfs", 0x01021994, undefined],
    ["btrfs", 0x9123683e, undefined],
    ["xfs", 0x58465342, undefined],
    ["overlayfs", 0x794c7630, undefined],
    ["NFS", 0x6969, true],
    ["SMB", 0x517b, true],
    ["CIFS", 0xff534d42, true],
    ["SMB 2", 0xfe534d42, true],
    ["9p", 0x01021997, true],
    ["AFS", 0x5346414f, true],
    ["Ceph", 0x00c36400, true],
    ["FUSE", 0x65735546, false],
    ["virtiofs", 0x6a656a63, false],
  ])("%s is trusted, refused or warned of", (_, type, refused) => {
    expect(judgeFilesystem(type, "linux")?.refused).toBe(refused);
    // Whichever way the number was made of 32 bits.
    expect(judgeFilesystem(type | 0, "linux")?.refused).toBe(refused);
    // Elsewhere the numbers mean something else.
    expect(judgeFilesystem(type, "darwin")).toBeUndefined();
    expect(judgeFilesystem(type, "win32")).toBeUndefined();
  });
});

describe("files that are exchanged while they are open", () => {
  const wal = (directory: string): string => path.join(directory, "localqueue.db-wal");
  const db = (directory: string): string => path.join(directory, "localqueue.db");

  /** What is done to the files, and whether a usable database stands in their place afterwards. */
  const exchanges: { readonly [what: string]: (directory: string) => Promise<unknown> } = {
    "the database is deleted": async (directory) => fs.rmSync(db(directory)),
    "the database is moved away": async (directory) => fs.renameSync(db(directory), `${db(directory)}.old`),
    "the database is replaced by another one": async (directory) => {
      fs.renameSync(db(await otherDatabase()), db(directory));
    },
    "the -wal is deleted": async (directory) => fs.rmSync(wal(directory)),
    "the -wal is replaced": async (directory) => {
      fs.writeFileSync(`${wal(directory)}.new`, "");
      fs.renameSync(`${wal(directory)}.new`, wal(directory));
    },
    "the directory is moved away": async (directory) => fs.renameSync(directory, `${directory}.old`),
    "the directory is replaced by another one": async (directory) => {
      fs.renameSync(directory, `${directory}.old`);
      fs.renameSync(await otherDatabase(), directory);
    },
  };

  async function otherDatabase(): Promise<string> {
    const directory = path.join(tempDirectory(), "other");
    const storage = open(directory);
    await storage.put([], PATIENT);
    await storage.stats();
    await storage.close();
    return directory;
  }

  const lost = { name: "StorageError", code: "FILE_REPLACED" };

  test.each(Object.entries(exchanges))("(%s) take no confirmed write any more", async (_, exchange) => {
    const directory = path.join(tempDirectory(), "queue");
    const storage = open(directory);
    await put(storage);
    const lease = await takeOne(storage);
    await exchange(directory);
    await expect(put(storage)).rejects.toMatchObject({ ...lost, message: expect.stringContaining(db(directory)) });
    // From now on, and through every storage that shares the engine.
    const other = open(directory, "other");
    const calls = [
      () => put(storage),
      () => put(other),
      () => storage.settle(lease, { event: "ack" }),
      () => storage.extend(lease, 1000),
      () => take(storage),
      () => storage.reclaim(),
      () => storage.stats(),
    ];
    for (const call of calls) await expect(call()).rejects.toMatchObject(lost);
    await Promise.all([storage.close(), other.close()]);
  });

  test.each(["the database is moved away", "the database is replaced by another one", "the -wal is deleted"])(
    "(%s) end the claims that wait",
    async (what) => {
      const directory = path.join(tempDirectory(), "queue");
      const storage = open(directory);
      await put(storage);
      await takeOne(storage);
      const waiting = storage.claim({ limit: 1, leaseMs: LEASE_MS });
      const ended = expect(waiting).rejects.toMatchObject(lost);
      await storage.stats();
      await exchanges[what]?.(directory);
      await ended;
    },
  );

  test("leave nothing in a database that took their place, which can be opened anew", async () => {
    const directory = path.join(tempDirectory(), "queue");
    const storage = open(directory);
    await put(storage);
    await exchanges["the database is replaced by another one"]?.(directory);
    await expect(put(storage)).rejects.toMatchObject(lost);
    await storage.close();
    fs.rmSync(wal(directory), { force: true });
    fs.rmSync(`${db(directory)}-shm`, { force: true });
    const anew = open(directory);
    expect(await anew.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 0 });
    expect(await put(anew)).toBe(1);
  });
});

const secondLibrary = process.platform === "linux" ? loadableCopy() : undefined;

describe.runIf(secondLibrary !== undefined)("a second SQLite library in the process", () => {
  /** What a program gets that opens files with the second library before it uses a queue. */
  function program(lines: string): Promise<unknown> {
    const copy = path.join(tempDirectory(), "better_sqlite3.node");
    fs.copyFileSync(secondLibrary ?? "", copy);
    return runModule(`
      import { createRequire } from "node:module";
      import { openStorage } from "dist/storage/location.js";
      const Database = createRequire(process.cwd() + "/")("better-sqlite3");
      const openWithSecondLibrary = (file) => new Database(file, { nativeBinding: ${JSON.stringify(copy)} });
      const openWithSameLibrary = (file) => new Database(file);
      const useQueue = async (directory) => {
        const storage = openStorage(directory, { queue: "default", fsync: undefined });
        const entry = { payload: "{}", jobId: undefined, delayMs: 0, maxAttempts: 4 };
        const outcome = await storage.put([entry], {}).catch(({ name, code, message }) => ({ name, code, message }));
        await storage.close();
        console.log(JSON.stringify(outcome));
      };
      ${lines}
    `);
  }

  test("that has the file open is refused", async () => {
    const directory = tempDirectory();
    await put(open(directory));
    const file = path.join(directory, "localqueue.db");
    const outcome = await program(`
      const other = openWithSecondLibrary(${JSON.stringify(file)});
      other.prepare("SELECT count(*) FROM messages").get();
      await useQueue(${JSON.stringify(directory)});
      other.close();
    `);
    expect(outcome).toMatchObject({
      name: "StorageError",
      code: "BAD_LOCATION",
      message: expect.stringContaining(file),
    });
  });

  test("that has the file open by another name is refused", async () => {
    const directory = tempDirectory();
    await put(open(directory));
    const link = path.join(tempDirectory(), "link");
    fs.symlinkSync(directory, link);
    const outcome = await program(`
      const other = openWithSecondLibrary(${JSON.stringify(path.join(link, "localqueue.db"))});
      await useQueue(${JSON.stringify(directory)});
      other.close();
    `);
    expect(outcome).toMatchObject({ code: "BAD_LOCATION" });
  });

  test("that has another file open is none of our business", async () => {
    const [directory, another] = [tempDirectory(), tempDirectory()];
    const outcome = await program(`
      const other = openWithSecondLibrary(${JSON.stringify(path.join(another, "localqueue.db"))});
      other.exec("CREATE TABLE t (a)");
      await useQueue(${JSON.stringify(directory)});
      other.close();
    `);
    expect(outcome).toEqual([{ id: 1, inserted: true }]);
  });

  test("that has closed the file is no danger any more", async () => {
    const directory = tempDirectory();
    const outcome = await program(`
      const other = openWithSecondLibrary(${JSON.stringify(path.join(directory, "localqueue.db"))});
      other.exec("CREATE TABLE t (a)");
      other.close();
      await useQueue(${JSON.stringify(directory)});
    `);
    expect(outcome).toEqual([{ id: 1, inserted: true }]);
  });

  test.runIf(loadDriver().name === "better-sqlite3")("is not what the application's own use of ours is", async () => {
    const directory = tempDirectory();
    await put(open(directory));
    const outcome = await program(`
      const other = openWithSameLibrary(${JSON.stringify(path.join(directory, "localqueue.db"))});
      other.prepare("SELECT count(*) FROM messages").get();
      await useQueue(${JSON.stringify(directory)});
      other.close();
    `);
    expect(outcome).toEqual([{ id: 2, inserted: true }]);
  });
});

/** The native part of better-sqlite3, if it can be loaded here. */
function loadableCopy(): string | undefined {
  const require = createRequire(import.meta.url);
  try {
    const Database = require("better-sqlite3") as new (path: string) => { close(): void };
    new Database(":memory:").close();
    return require.resolve("better-sqlite3/build/Release/better_sqlite3.node");
  } catch {
    return undefined;
  }
}

function modes(directory: string, names: readonly string[]): { [name: string]: string } {
  const mode = (name: string): string => (fs.statSync(path.join(directory, name)).mode & 0o777).toString(8);
  return Object.fromEntries(names.map((name) => [name, mode(name)]));
}

function open(directory: string, queue = "default"): Storage {
  const storage = openStorage(directory, { queue, fsync: undefined });
  onTestFinished(() => storage.close());
  return storage;
}
