import fs from "node:fs";
import path from "node:path";
import type { Worker } from "node:worker_threads";
import { describe, expect, onTestFinished, test } from "vitest";
import type { ConsumerListener, Delivery } from "../dist/storage/storage.js";
import { lockDatabase, readRow, steal } from "./support/database.ts";
import { sabotagedEngine } from "./support/sabotaged.ts";
import { Script, type ScriptOptions } from "./support/script.ts";
import { claimAll, entry, open, rejection } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const LEASE_MS = 600;

/** The engines' threads that are started during the test. */
function watchThreads(): Worker[] {
  const threads: Worker[] = [];
  const note = (worker: Worker): void => void threads.push(worker);
  process.on("worker", note);
  onTestFinished(() => void process.off("worker", note));
  return threads;
}

function listener(): { listener: ConsumerListener; told: string[] } {
  const told: string[] = [];
  return {
    told,
    listener: {
      leaseLost: () => told.push("lost"),
      leaseRenewed: () => told.push("renewed"),
      timedOut: () => told.push("timed out"),
      overdue: () => told.push("overdue"),
    },
  };
}

const settings = {
  slots: 2,
  leaseMs: LEASE_MS,
  heartbeatMs: LEASE_MS / 3,
  timeoutMs: undefined,
  graceMs: 1000,
  maxAttempts: undefined,
};

describe("when the engine's thread dies", () => {
  test("the next operation starts another", async () => {
    const threads = watchThreads();
    const storage = open(tempDirectory());
    for (let round = 1; round <= 3; round++) {
      await storage.put([entry("job")], {});
      expect(threads).toHaveLength(round);
      await threads.at(-1)?.terminate();
    }
    expect(await claimAll(storage)).toHaveLength(3);
  });

  test("the handler of a rejection can go on at once", async () => {
    const threads = watchThreads();
    const directory = tempDirectory();
    const storage = open(directory);
    await storage.stats();
    const claim = storage.claim({ limit: 1, leaseMs: 1000 });
    const next = claim.catch(() => storage.put([entry("job")], {}));
    await threads[0]?.terminate();
    expect(await next).toMatchObject([{ inserted: true }]);
  });

  test("puts that wait for room are told, and are not in the file", async () => {
    const threads = watchThreads();
    const directory = tempDirectory();
    const storage = open(directory, "default", { maxPendingJobs: 1 });
    await storage.put([entry("job")], {});
    const waiting = Array.from({ length: 3 }, () => rejection(storage.put([entry("next")], {})));
    await storage.stats();
    await threads[0]?.terminate();
    for (const error of await Promise.all(waiting)) expect(error).toMatchObject({ code: "IO" });
    expect(await storage.stats()).toMatchObject({ ready: 1 });
    const [delivery] = await claimAll(storage);
    const again = storage.put([entry("again")], {});
    await storage.stats();
    await storage.settle(delivery as Delivery, { event: "ack" });
    await again;
  });

  test("a consumer's leases are renewed by the next one, without anybody asking", async () => {
    const threads = watchThreads();
    const directory = tempDirectory();
    const storage = open(directory);
    const other = open(directory, "another");
    await storage.put([entry("job")], {});
    const { listener: ears, told } = listener();
    const consumer = storage.consume(settings, ears);
    const delivery = await consumer.claim(0, { waitMs: Number.POSITIVE_INFINITY });
    if (delivery === undefined) throw new Error("nothing was delivered");
    expect(consumer.start(0, delivery)).toBe(true);

    for (let round = 0; round < 2; round++) {
      await threads.at(-1)?.terminate();
      const renewals = told.length;
      await until(() => told.length > renewals + 6);
      expect(readRow(directory, delivery.id)).toMatchObject({ receipt: delivery.receipt, attempts: 1 });
    }
    expect(told).not.toContain("lost");
    expect(await storage.settle(delivery, { event: "ack" })).toBe("acked");
    await other.close();
  });

  test("a consumer can claim from the next one", async () => {
    const threads = watchThreads();
    const storage = open(tempDirectory());
    const consumer = storage.consume(settings, listener().listener);
    const waiting = rejection(consumer.claim(0, { waitMs: Number.POSITIVE_INFINITY }));
    await until(() => threads.length > 0);
    await storage.stats();
    await threads[0]?.terminate();
    expect(await waiting).toMatchObject({ code: "IO", outcome: "unknown" });
    await storage.put([entry("job")], {});
    const delivery = await consumer.claim(0, { waitMs: Number.POSITIVE_INFINITY });
    if (delivery === undefined) throw new Error("nothing was delivered");
    expect(delivery).toMatchObject({ attempt: 1 });
    expect(consumer.start(0, delivery)).toBe(true);
  });

  test("a lease whose settlement was refused is not taken up again", async () => {
    const threads = watchThreads();
    const directory = tempDirectory();
    const storage = open(directory);
    await storage.put([entry("job")], {});
    const { listener: ears, told } = listener();
    const consumer = storage.consume({ ...settings, leaseMs: 60_000, heartbeatMs: 20_000 }, ears);
    const delivery = await consumer.claim(0, { waitMs: Number.POSITIVE_INFINITY });
    if (delivery === undefined) throw new Error("nothing was delivered");
    consumer.start(0, delivery);
    steal(directory, delivery.id);
    expect(await rejection(storage.settle(delivery, { event: "ack" }))).toMatchObject({ name: "LeaseExpiredError" });
    await threads[0]?.terminate();
    await storage.put([entry("another")], {});
    expect(threads).toHaveLength(2);
    expect(told).toEqual([]);
  });

  test("close resolves all the same", async () => {
    const threads = watchThreads();
    const storage = open(tempDirectory());
    const claim = rejection(storage.claim({ limit: 1, leaseMs: 1000 }));
    await storage.stats();
    const terminated = threads[0]?.terminate();
    await storage.close();
    await terminated;
    expect(["CLOSED", "IO"]).toContain(((await claim) as { code: string }).code);
  });
});

test.each([false, LEASE_MS / 3] as const)(
  "a handler is not started once its lease is lost, for instance while the payload was decoded (heartbeat: %s)",
  async (heartbeatMs: number | false) => {
    const directory = tempDirectory();
    const storage = open(directory);
    await storage.put([entry("job")], {});
    const { listener: ears, told } = listener();
    const consumer = storage.consume({ ...settings, heartbeatMs }, ears);
    const delivery = await consumer.claim(0, { waitMs: Number.POSITIVE_INFINITY });
    if (delivery === undefined) throw new Error("nothing was delivered");
    if (heartbeatMs !== false) steal(directory, delivery.id);
    await until(() => told.includes("lost"));
    expect(consumer.start(0, delivery)).toBe(false);

    await storage.put([entry("next")], {});
    const next = await consumer.claim(0, { waitMs: Number.POSITIVE_INFINITY });
    if (next === undefined) throw new Error("nothing was delivered");
    expect(consumer.start(0, next)).toBe(true);
  },
);

/** Ends the engine's thread badly as soon as it is told to put into the queue "bad". */
function sabotaged(ending: string): ScriptOptions {
  const root = sabotagedEngine(`
    const { receive } = Engine.prototype;
    Engine.prototype.receive = function (message) {
      if (message.kind === "batch" && message.commands.some(({ origin }) => origin.queue === "bad")) { ${ending} }
      receive.call(this, message);
    };`);
  // So that it is soon out of memory.
  return { dist: new URL("dist/", root), nodeOptions: ["--max-old-space-size=64"] };
}

describe.each([
  ["throws", 'throw new Error("injected")'],
  ["throws nothing in particular", "throw undefined"],
  ["exits", "process.exit(0)"],
  ["runs out of memory", "for (const hoard = []; ; ) hoard.push([hoard.length])"],
])("when the engine's thread %s", (_, ending) => {
  test("its callers are told, and the program goes on", async () => {
    const program = new Script(
      tempDirectory(),
      `const bad = open("bad"), good = open();
      await good.put([entry("before")], {});
      const [put, claim] = await Promise.all([
        bad.put([entry("job")], {}).catch((error) => error),
        good.claim({ limit: 2, leaseMs: 1000 }).catch((error) => error),
      ]);
      print([put, claim].map(({ name, code, outcome }) => [name, code, outcome]));
      print(await good.put([entry("after")], {}));`,
      sabotaged(ending),
    );
    const { code, errors } = await program.ended();
    expect(program.printed).toEqual([Array(2).fill(["StorageError", "IO", "unknown"]), [{ id: 2, inserted: true }]]);
    expect([code, errors]).toEqual([0, ""]);
  });

  test("what it was sent may have happened, what it was not sent has not", async () => {
    const directory = tempDirectory();
    const program = new Script(
      directory,
      `const bad = open("bad"), good = open();
      await good.stats();
      const puts = Array.from({ length: 2500 }, (_, i) => (i === 500 ? bad : good).put([entry("job")], {}));
      const outcomes = (await Promise.allSettled(puts)).map(({ reason }) => reason.outcome);
      const lastUnknown = outcomes.lastIndexOf("unknown"), firstFailed = outcomes.indexOf("failed");
      print([outcomes.length, lastUnknown < firstFailed, firstFailed]);
      print(await good.stats());`,
      sabotaged(ending),
    );
    await program.ended();
    expect(program.printed).toEqual([[2500, true, 2000], { ready: 0, processing: 0, acked: 0, failed: 0 }]);
  });

  test("a program that does not expect it ends with an error", async () => {
    const program = new Script(tempDirectory(), 'await open("bad").put([entry("job")], {});', sabotaged(ending));
    const { code, errors } = await program.ended();
    expect(code).toBe(1);
    expect(errors).toContain("StorageError");
  });
});

describe("when the engine's thread cannot be started", () => {
  const permission = ["--permission", "--experimental-permission"].find((flag) =>
    process.allowedNodeEnvironmentFlags.has(flag),
  );

  test.skipIf(permission === undefined)("its callers are told, and the program goes on", async () => {
    const program = new Script(
      tempDirectory(),
      `const storage = open();
      process.on("uncaughtException", (error) => print(["uncaught", error.message]));
      for (let i = 0; i < 2; i++) {
        const { name, code, outcome, cause } = await storage.put([entry("job")], {}).catch((error) => error);
        print([name, code, outcome, cause?.code]);
      }
      await storage.close();
      print("closed");`,
      { nodeOptions: [permission ?? "", "--allow-fs-read=*", "--allow-fs-write=*"] },
    );
    const { code } = await program.ended();
    expect(program.printed).toEqual([
      ...Array(2).fill(["StorageError", "IO", "failed", "ERR_ACCESS_DENIED"]),
      "closed",
    ]);
    expect(code).toBe(0);
  });
});

/** Shows that the program lives, without keeping it alive. */
const TICKING = `setInterval(() => print("tick"), 25).unref();`;

function ticksOf(program: Script): number {
  return program.printed.filter((line) => line === "tick").length;
}

describe("a program", () => {
  test("that forgets to close its storage ends by itself", async () => {
    const program = new Script(
      tempDirectory(),
      `const storage = open();
      await storage.put([entry("job")], {});
      const consumer = storage.consume(${JSON.stringify({ ...settings, timeoutMs: undefined })}, {
        leaseLost() {}, leaseRenewed() {}, timedOut() {}, overdue() {},
      });
      const delivery = await consumer.claim(0, { waitMs: Number.POSITIVE_INFINITY });
      consumer.start(0, delivery);
      consumer.close();
      print(delivery.attempt);`,
    );
    const { code, errors } = await program.ended();
    expect(program.printed).toEqual([1]);
    expect([code, errors]).toEqual([0, ""]);
  });

  test("lives for as long as an operation is pending, however long that takes", async () => {
    const directory = tempDirectory();
    await open(directory).stats();
    const unlock = lockDatabase(directory);
    const program = new Script(
      directory,
      `const storage = open();
      storage.put([entry("job")], {}).then(print);
      ${TICKING}`,
    );
    await until(() => ticksOf(program) > 20);
    unlock();
    const { code } = await program.ended();
    expect(program.printed.filter((line) => line !== "tick")).toEqual([[{ id: 1, inserted: true }]]);
    expect(code).toBe(0);
  });

  test("lives for as long as it waits for a job", async () => {
    const directory = tempDirectory();
    const program = new Script(
      directory,
      `const storage = open();
      storage.claim({ limit: 1, leaseMs: 1000 }).then(([{ attempt }]) => print(attempt));
      ${TICKING}`,
    );
    await until(() => ticksOf(program) > 10);
    await open(directory).put([entry("job")], {});
    const { code } = await program.ended();
    expect(program.printed.filter((line) => line !== "tick")).toEqual([1]);
    expect(code).toBe(0);
  });

  test.each(["its own options", "NODE_OPTIONS"])(
    "can have %s that the engine's thread does not inherit",
    async (by) => {
      const directory = tempDirectory();
      const preload = path.join(directory, "preload.cjs");
      fs.writeFileSync(
        preload,
        `if (!require("node:worker_threads").isMainThread) throw new Error("loaded in a thread");
      process.stdout.write('"preloaded"\\n');`,
      );
      const program = new Script(path.join(directory, "data"), 'print(await open().put([entry("job")], {}));', {
        nodeOptions: by === "NODE_OPTIONS" ? [] : ["--require", preload],
        env: by === "NODE_OPTIONS" ? { NODE_OPTIONS: `--require ${preload}` } : {},
      });
      const { code, errors } = await program.ended();
      expect(program.printed).toEqual(["preloaded", [{ id: 1, inserted: true }]]);
      expect([code, errors]).toEqual([0, ""]);
    },
  );

  test.each([
    ["while the database is locked", true],
    ["while the engine is busy", false],
  ])("can exit %s", async (_, locked) => {
    const directory = tempDirectory();
    await open(directory).stats();
    const unlock = locked ? lockDatabase(directory) : () => {};
    const program = new Script(
      directory,
      `const storage = open();
      await storage.claim({ limit: 1, leaseMs: 1000, timeoutMs: 0 });
      const put = () => storage.put([entry("job")], {}).then(put);
      for (let i = 0; i < 20; i++) put();
      await storage.stats(); // which the engine hears of after the puts
      process.exit(3);`,
    );
    const { code, signal, errors } = await program.ended();
    unlock();
    expect([code, signal, errors]).toEqual([3, null, ""]);
  });

  test("that ends with an exception while the database is locked says so", async () => {
    const directory = tempDirectory();
    await open(directory).stats();
    const unlock = lockDatabase(directory);
    const program = new Script(
      directory,
      `const storage = open();
      await storage.claim({ limit: 1, leaseMs: 1000, timeoutMs: 0 });
      storage.put([entry("job")], {}).catch(() => {});
      await storage.stats(); // which the engine hears of after the put
      throw new Error("of the program itself");`,
    );
    const { code, errors } = await program.ended();
    unlock();
    expect(code).toBe(1);
    expect(errors).toContain("of the program itself");
  });
});
