import fs from "node:fs";
import path from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import type { Delivery } from "../dist/storage/storage.js";
import { type Call, TestEngine } from "./support/engine-harness.ts";
import { ERROR_FORMS, type Fault, FaultyDriver, payloadIs, sqliteError } from "./support/faulty-driver.ts";
import { tempDirectory } from "./support/temp.ts";

const MIB = 1024 * 1024;
const FULL = sqliteError("FULL");
const NO_ROOM = { code: "DISK_FULL", outcome: "failed" };

/** What the system says of the disk from now on. */
function pretendFree(bytes: () => number): void {
  const real = fs.statfsSync;
  const spy = vi.spyOn(fs, "statfsSync").mockImplementation(((directory: string) => {
    const blocks = Math.floor(bytes() / 4096);
    return { ...real(directory), bsize: 4096, bavail: blocks, bfree: blocks };
  }) as typeof fs.statfsSync);
  onTestFinished(() => spy.mockRestore());
}

interface Scene {
  readonly engine: TestEngine;
  readonly driver: FaultyDriver;
  readonly directory: string;
  readonly lease: Delivery;
  readonly disk: { free: number };
  readonly reserve: () => number | undefined;
}

/** An engine with a leased job, on a disk that has become full. */
function open(): Scene {
  const directory = tempDirectory();
  const disk = { free: 1000 * MIB };
  const file = path.join(directory, "localqueue.reserve");
  const reserve = (): number | undefined => fs.statSync(file, { throwIfNoEntry: false })?.size;
  pretendFree(() => disk.free + 2 * MIB - (reserve() ?? 2 * MIB));
  const driver = new FaultyDriver();
  const engine = new TestEngine({ directory, driver });
  engine.put("job");
  const claim = engine.claim();
  engine.run();
  disk.free = 0;
  driver.log.length = 0;
  return { engine, driver, directory, lease: claim.delivery, disk, reserve };
}

/** Commands for which the reserve makes room, and the statements that may find none. */
const SETTLING: readonly (readonly [name: string, sql: string, give: (engine: TestEngine, lease: Delivery) => Call])[] =
  [
    ["ack", SQL.ack, (engine, lease) => engine.ack(lease)],
    [
      "nack",
      SQL.nack,
      (engine, lease) =>
        engine.settle(lease, { event: "nack", delayMs: 0, lastError: "E: e", exhaustedReason: "retries_exhausted" }),
    ],
    [
      "fail",
      SQL.fail,
      (engine, lease) =>
        engine.settle(lease, { event: "fail", lastError: "E: e", reason: "rejected", category: undefined }),
    ],
    ["release", SQL.release, (engine, lease) => engine.settle(lease, { event: "release" })],
    ["extend", SQL.extend, (engine, lease) => engine.extend(lease, 30_000)],
  ];

describe.each(ERROR_FORMS)("a disk that turns out to be full, in the form of $library", ({ error }) => {
  describe.each(SETTLING)("at %s", (_, sql, give) => {
    const places = [sql, "BEGIN IMMEDIATE", SQL.count, "COMMIT"];
    const reallies = ["nothing", "rolls back"] as const;
    test.each(places.flatMap((at) => reallies.map((really) => ({ at, really }))))(
      "during $at ($really): it succeeds with what the reserve gives, puts of the same batch are refused",
      ({ at, really }) => {
        const { engine, driver, lease, reserve } = open();
        driver.plant({ at, error: error("FULL"), really: at === "BEGIN IMMEDIATE" ? "nothing" : really });
        const [put, call] = [engine.put("a"), give(engine, lease)];
        engine.run();
        expect(call.error).toBeUndefined();
        expect(put.error).toMatchObject(NO_ROOM);
        expect(engine.stored()).toEqual(["job"]);
        expect(reserve()).toBe(1.5 * MIB);
        const stats = engine.stats();
        engine.run();
        expect(Object.values(stats.answer?.stats ?? {}).reduce((sum, jobs) => sum + jobs)).toBe(1);
      },
    );
  });

  test("while the outcome of a COMMIT is looked up: the reserve makes room for that, too", () => {
    const { engine, driver, lease, reserve } = open();
    driver.plant({ at: "COMMIT", times: 2, error: error("FULL") });
    const [put, ack] = [engine.put("a"), engine.ack(lease)];
    engine.run();
    expect(put.error).toMatchObject(NO_ROOM);
    expect(ack.answer).toMatchObject({ settled: "acked" });
    expect(reserve()).toBe(0.5 * MIB);
  });

  test("and once more when the batch is repeated: a further piece of the reserve serves that", () => {
    const { engine, driver, lease, reserve } = open();
    driver.plant({ at: "COMMIT", error: error("FULL") });
    driver.plant({ at: "COMMIT", after: 2, error: error("FULL") });
    const ack = engine.ack(lease);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
    expect(reserve()).toBe(0.5 * MIB);
  });

  test("although the COMMIT has happened: nobody is told otherwise", () => {
    const { engine, driver, lease } = open();
    driver.plant({ at: "COMMIT", error: error("FULL"), really: "executes" });
    const [put, ack] = [engine.put("a"), engine.ack(lease)];
    engine.run();
    expect(put.put).toEqual([{ id: 2, inserted: true }]);
    expect(ack.answer).toMatchObject({ settled: "acked" });
    expect(driver.count(SQL.put)).toBe(1);
  });

  test("at a claim: it succeeds, and so does the renewal of the lease", () => {
    const { engine, driver, lease } = open();
    const consumer = engine.consume();
    engine.settle(lease, { event: "release" });
    driver.plant({ at: SQL.claim, error: error("FULL"), really: "rolls back" });
    const claim = consumer.claim();
    engine.run();
    expect(claim.delivery.id).toBe(1);
    driver.plant({ at: SQL.renew, error: error("FULL"), really: "rolls back" });
    engine.elapse(3_000);
    expect(engine.news).toContainEqual(expect.objectContaining({ news: "renewed" }));
  });
});

describe("on a full disk", () => {
  const full: Fault = { at: SQL.put, with: payloadIs("first"), error: FULL, really: "rolls back" };

  function fill(scene: Scene): void {
    scene.driver.plant(full);
    const first = scene.engine.put("first");
    scene.engine.run();
    expect(first.error).toMatchObject(NO_ROOM);
    scene.driver.log.length = 0;
  }

  test("a put is refused at once, without an attempt", () => {
    const scene = open();
    fill(scene);
    const puts = [scene.engine.put("a"), scene.engine.putMany(["b", "c"])];
    scene.engine.step();
    for (const { error } of puts) expect(error).toMatchObject({ ...NO_ROOM, cause: undefined });
    expect(scene.driver.log).toEqual([]);
    expect(scene.engine.batchesDone).toBeGreaterThan(0);
  });

  test("events are refused as well, and an ack that emits some, while one that emits none goes on", () => {
    const scene = open();
    fill(scene);
    const refused = [scene.engine.dispatch([{}]), scene.engine.emit(scene.lease, [{}])];
    scene.engine.step();
    for (const { error } of refused) expect(error).toMatchObject({ ...NO_ROOM, cause: undefined });
    expect(scene.driver.log).toEqual([]);
    const ack = scene.engine.ack(scene.lease);
    scene.engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
  });

  test("puts go on a quarter of a second after there is room, and the reserve is whole again", () => {
    const scene = open();
    fill(scene);
    scene.disk.free = 10 * MIB;
    const early = scene.engine.put("early");
    scene.engine.run();
    expect(early.error).toMatchObject(NO_ROOM);
    scene.engine.elapse(250);
    const put = scene.engine.put("late");
    scene.engine.run();
    expect(put.put).toMatchObject([{ inserted: true }]);
    expect(scene.reserve()).toBe(2 * MIB);
  });

  test("the disk is asked at most four times a second", () => {
    const scene = open();
    fill(scene);
    const asked = vi.mocked(fs.statfsSync).mock.calls.length;
    for (let i = 0; i < 100; i++) {
      scene.engine.put("a");
      scene.engine.step();
      scene.engine.clock.advance(10);
    }
    expect(vi.mocked(fs.statfsSync).mock.calls.length - asked).toBeLessThanOrEqual(5);
  });

  test("that only seems to have room again, it is asked ever less often", () => {
    const scene = open();
    fill(scene);
    scene.disk.free = 10 * MIB;
    let attempts = 0;
    scene.driver.plant({ at: SQL.put, times: 1000, strikes: () => attempts++ });
    scene.driver.plant({ at: "COMMIT", times: Number.POSITIVE_INFINITY, error: FULL, really: "rolls back" });
    for (let i = 0; i < 600; i++) {
      scene.engine.put("a");
      scene.engine.ack({ ...scene.lease, receipt: "none" });
      scene.engine.elapse(100);
    }
    expect(attempts).toBeLessThan(20);
  });

  test("the last of the reserve is for what holds a job, as long as the log cannot start over", () => {
    const { engine, driver, directory, lease, disk, reserve } = open();
    disk.free = 1000 * MIB;
    engine.putMany(["a", "b"]);
    engine.run();
    disk.free = -1.5 * MIB;
    fs.truncateSync(path.join(directory, "localqueue.reserve"), MIB / 2);
    const stuck = driver.plant({ at: /wal_checkpoint/, times: 1000, error: sqliteError("BUSY") });
    driver.plant({ at: "COMMIT", error: FULL });
    const [claim, extend] = [engine.claim(), engine.extend(lease, 30_000)];
    engine.run();
    expect(reserve()).toBe(0);
    expect(extend.answer).toMatchObject({ extended: expect.any(Number) });
    expect(claim.error).toMatchObject(NO_ROOM);
    const second = engine.claim();
    engine.run();
    expect(second.error).toMatchObject(NO_ROOM);
    expect(stuck.struck).toBeGreaterThan(0);
    driver.heal();
    const ack = engine.ack(lease);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
    const third = engine.claim();
    engine.run();
    expect(engine.textOf(third.delivery)).toBe("a");
  });

  test("no checkpoint is begun that would find no room for the database to grow", () => {
    const { engine, driver, directory, lease, disk } = open();
    disk.free = 1000 * MIB;
    for (let i = 0; i < 5; i++) engine.put("x".repeat(200_000));
    engine.run();
    disk.free = -2 * MIB;
    fs.truncateSync(path.join(directory, "localqueue.reserve"), 0);
    const begun = driver.plant({ at: /wal_checkpoint.PASSIVE/, times: 1000, strikes: () => {} });
    driver.plant({ at: "COMMIT", error: FULL });
    const extend = engine.extend(lease, 30_000);
    const put = engine.put("a");
    engine.run();
    expect(extend.answer).toMatchObject({ extended: expect.any(Number) });
    expect(put.error).toMatchObject(NO_ROOM);
    expect(begun.struck).toBe(0);
    disk.free = 0;
    const ack = engine.ack(lease);
    engine.run();
    expect(ack.answer).toMatchObject({ settled: "acked" });
    expect(begun.struck).toBe(1);
  });

  test("another engine that did not meet it learns of it from the reserve", () => {
    const scene = open();
    const other = new TestEngine({ directory: scene.directory });
    fill(scene);
    other.elapse(20);
    const put = other.put("a");
    other.run();
    expect(put.error).toMatchObject(NO_ROOM);
    scene.disk.free = 10 * MIB;
    other.elapse(250);
    const again = other.put("b");
    other.run();
    expect(again.put).toMatchObject([{ inserted: true }]);
  });
});

describe("the reserve", () => {
  test("is not made where it would take more than a tenth of what is free", () => {
    pretendFree(() => 9 * MIB);
    const directory = tempDirectory();
    const engine = new TestEngine({ directory });
    engine.put("a");
    engine.run();
    expect(fs.readdirSync(directory)).not.toContain("localqueue.reserve");
  });

  test("is not made, nor touched, where something else has its name", () => {
    const directory = tempDirectory();
    const precious = path.join(directory, "precious");
    fs.writeFileSync(precious, "x".repeat(100));
    fs.symlinkSync(precious, path.join(directory, "localqueue.reserve"));
    const engine = new TestEngine({ directory });
    engine.put("a");
    engine.run();
    expect(fs.readFileSync(precious, "utf8")).toBe("x".repeat(100));
  });

  test.skipIf(process.geteuid?.() !== 0)("belongs to whom the database belongs, though root made it", () => {
    const directory = tempDirectory();
    const file = path.join(directory, "localqueue.reserve");
    new TestEngine({ directory }).close();
    fs.rmSync(file, { force: true });
    fs.chownSync(path.join(directory, "localqueue.db"), 65_534, 65_534);
    const engine = new TestEngine({ directory });
    engine.put("a");
    engine.run();
    expect(fs.statSync(file)).toMatchObject({ uid: 65_534, gid: 65_534 });
  });

  test("grows with the log, up to 22 MiB, and with nothing that a file system could compress", () => {
    const directory = tempDirectory();
    const file = path.join(directory, "localqueue.reserve");
    const engine = new TestEngine({ directory });
    for (let i = 0; i < 60; i++) {
      engine.put(new Uint8Array(500_000));
      engine.run();
      if (i === 5) expect(fs.statSync(file).size).toBe(5 * MIB);
    }
    expect(fs.statSync(file).size).toBeGreaterThan(16 * MIB);
    const content = fs.readFileSync(file);
    expect(new Set(content.subarray(0, MIB)).size).toBe(256);
    expect(content.subarray(-4096).every((byte) => byte === 0)).toBe(false);
  });
});
