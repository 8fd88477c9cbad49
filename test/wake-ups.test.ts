import fs from "node:fs";
import { describe, expect, onTestFinished, test } from "vitest";
import { SIGNAL, WATCH } from "../dist/storage/sqlite/protocol.js";
import type { Storage } from "../dist/storage/storage.js";
import { TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver } from "./support/faulty-driver.ts";
import { Script } from "./support/script.ts";
import { entry, open, textOf } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

/** Another process that puts a job on demand; gives the moment at which it was committed. */
function openProducer(directory: string): (payload: string) => Promise<number> {
  const program = new Script(
    directory,
    `const storage = open();
    await storage.stats();
    print("ready");
    for await (const payload of lines()) {
      await storage.put([entry(payload)], {});
      print(Date.now());
    }`,
  );
  let puts = 0;
  return async (payload) => {
    await until(() => program.printed.length > puts);
    program.tell(payload);
    puts++;
    return Number(await until(() => program.printed[puts]));
  };
}

/** How long a waiting claim took to notice each of some jobs of another process. */
async function latencies(
  storage: Storage,
  put: (payload: string) => Promise<number>,
  rounds: number,
): Promise<number[]> {
  const took: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const claim = storage.claim({ limit: 1, leaseMs: 60_000 }).then(([delivery]) => ({ delivery, at: Date.now() }));
    // The engine has looked for the claim in vain, so that it must be woken.
    await storage.stats();
    const committed = await put(`job ${round}`);
    const { delivery, at } = await claim;
    if (delivery === undefined) throw new Error("nothing was delivered");
    expect(textOf(delivery)).toBe(`job ${round}`);
    await storage.settle(delivery, { event: "ack" });
    took.push(at - committed);
  }
  return took.sort((a, b) => a - b);
}

function replaceWatch(watch: (...args: Parameters<typeof fs.watch>) => fs.FSWatcher): void {
  const original = fs.watch;
  fs.watch = watch as typeof fs.watch;
  onTestFinished(() => {
    fs.watch = original;
  });
}

describe("a claim that waits", () => {
  test("is woken by a commit of another process", async () => {
    const directory = tempDirectory();
    const storage = open(directory);
    await storage.stats();
    const sorted = await latencies(storage, openProducer(directory), 15);
    expect(sorted[7]).toBeLessThan(200);
    expect(sorted.at(-1)).toBeLessThan(3000);
  });

  test("is woken soon where directories cannot be watched", async () => {
    const directory = tempDirectory();
    replaceWatch(() => {
      throw Object.assign(new Error("System limit for number of file watchers reached"), { code: "ENOSPC" });
    });
    const storage = open(directory);
    await storage.stats();
    const sorted = await latencies(storage, openProducer(directory), 9);
    expect(sorted[4]).toBeLessThan(300);
    expect(sorted.at(-1)).toBeLessThan(3000);
  });

  test("is woken within moments where a watch never tells of anything", async () => {
    const directory = tempDirectory();
    const { watch } = fs;
    let watches = 0;
    replaceWatch((_, options) => {
      watches++;
      return watch(tempDirectory(), options as fs.WatchOptions);
    });
    const storage = open(directory);
    await storage.stats();
    const [latency] = await latencies(storage, openProducer(directory), 1);
    expect(watches).toBeGreaterThan(0);
    expect(latency).toBeLessThan(3000);
  });

  test("is served when a delay is over, and not before", async () => {
    const storage = open(tempDirectory());
    await storage.put([entry("job", { delayMs: 400 })], {});
    const started = Date.now();
    const [delivery] = await storage.claim({ limit: 1, leaseMs: 60_000 });
    expect(Date.now() - started).toBeGreaterThanOrEqual(380);
    expect(Date.now() - started).toBeLessThan(3000);
    expect(delivery).toMatchObject({ attempt: 1 });
  });

  test("takes over the job of a process that died, when its lease is over", async () => {
    const directory = tempDirectory();
    const storage = open(directory);
    await storage.put([entry("job")], {});
    const program = new Script(
      directory,
      `const [delivery] = await open().claim({ limit: 1, leaseMs: 1500 });
      print(delivery.leaseUntil);
      await sleep(60000);`,
    );
    const leaseUntil = Number(await until(() => program.printed[0]));
    program.child.kill("SIGKILL");
    const [delivery] = await storage.claim({ limit: 1, leaseMs: 60_000 });
    expect(delivery).toMatchObject({ id: 1, attempt: 2 });
    expect(Date.now()).toBeGreaterThanOrEqual(leaseUntil);
    expect(Date.now()).toBeLessThan(leaseUntil + 3000);
  });

  test("hears of a job that its own process puts, through another storage too", async () => {
    const directory = tempDirectory();
    const [first, second] = [open(directory), open(directory)];
    const claim = first.claim({ limit: 1, leaseMs: 60_000 });
    await first.stats();
    const started = performance.now();
    await second.put([entry("job")], {});
    expect((await claim).map(textOf)).toEqual(["job"]);
    expect(performance.now() - started).toBeLessThan(900);
  });
});

describe("an engine", () => {
  test("sleeps until the next job is due or the next lease ends, but never longer than a second", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    const claim = engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.run();
    expect(engine.step()).toBe(1000);
    engine.put("job", { delayMs: 300 });
    engine.run();
    const wait = engine.step();
    expect(wait).toBeGreaterThan(200);
    expect(wait).toBeLessThanOrEqual(300);
    engine.clock.advance(wait - 1);
    engine.step();
    expect(claim.answered).toBe(false);
    engine.clock.advance(1);
    engine.step();
    expect(claim.claimed).toHaveLength(1);
  });

  test("with nobody waiting and nothing held sleeps for ever", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    engine.put("job");
    engine.put("delayed", { delayMs: 300 });
    engine.run();
    // After its first transaction, which does not know what others did before, it looks whether there is space to give back.
    engine.elapse(11_000);
    expect(engine.step()).toBe(Number.POSITIVE_INFINITY);
  });

  test("that is woken for nothing does nothing", () => {
    const driver = new FaultyDriver();
    const engine = new TestEngine({ directory: tempDirectory(), driver });
    const claim = engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.put("delayed", { delayMs: 5000 });
    engine.run();
    driver.log.length = 0;
    for (let i = 0; i < 100; i++) engine.step();
    expect(driver.log).toEqual([]);
    expect(claim.answered).toBe(false);
    engine.elapse(5000);
    expect(claim.claimed).toHaveLength(1);
  });

  test("that is not woken finds the commits of others by itself", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    const claim = engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.run();
    const { wall } = engine.clock;
    engine.foreign(
      `INSERT INTO messages (queue, payload, status, max_attempts, available_at, created_at, updated_at)
        VALUES ('default', 'job', 0, 4, ${wall}, ${wall}, ${wall})`,
    );
    engine.elapse(1100);
    expect(claim.claimed).toHaveLength(1);
  });

  test("looks more often where there is no watch", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    Atomics.store(engine.signals, SIGNAL.watch, WATCH.unavailable);
    engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.run();
    expect(engine.step()).toBe(25);
  });

  test("asks for a watch, and looks once more when it is there", () => {
    const engine = new TestEngine({ directory: tempDirectory() });
    Atomics.store(engine.signals, SIGNAL.watch, WATCH.off);
    engine.claim({ waitMs: Number.POSITIVE_INFINITY });
    engine.run();
    expect(engine.watchesAskedFor).toBeGreaterThan(0);
    const asked = engine.watchesAskedFor;
    Atomics.store(engine.signals, SIGNAL.watch, WATCH.armed);
    engine.elapse(5000);
    expect(engine.watchesAskedFor).toBe(asked);
  });
});
