import { describe, expect, test } from "vitest";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import { SQL } from "../dist/storage/sqlite/statements.js";
import type { Delivery } from "../dist/storage/storage.js";
import type { Call, TestEngine } from "./support/engine-harness.ts";
import { ERROR_FORMS, type Fault, type FaultyDriver, payloadIs, sqliteError } from "./support/faulty-driver.ts";
import { openFaulty, statsOf } from "./support/faulty-engine.ts";

const FAILED_FSYNC = sqliteError("IOERR_FSYNC");

/** An engine with one job that is leased. */
function openWithLease(): { engine: TestEngine; driver: FaultyDriver; lease: Delivery } {
  const { engine, driver } = openFaulty();
  engine.put("job");
  const claim = engine.claim();
  engine.run();
  driver.log.length = 0;
  return { engine, driver, lease: claim.delivery };
}

describe.each(ERROR_FORMS)("a COMMIT that fails, in the form of $library", ({ error }) => {
  describe.each(["nothing", "rolls back"] as const)("and has not happened (%s)", (really) => {
    test.each(["IOERR_FSYNC", "FULL", "BUSY"] as const)("after %s the batch runs once more, exactly once", (name) => {
      const { engine, driver, lease } = openWithLease();
      driver.plant({ at: "COMMIT", error: error(name), really });
      const ack = engine.ack(lease);
      const [first, many] = [engine.put("a"), engine.putMany(["b", "c"])];
      const claim = engine.claim();
      engine.run();

      expect(ack.answer).toMatchObject({ settled: "acked" });
      expect(engine.stored()).toEqual(["job", "a", "b", "c"]);
      expect([...(first.put ?? []), ...(many.put ?? [])]).toEqual([2, 3, 4].map((id) => ({ id, inserted: true })));
      expect(engine.textOf(claim.delivery)).toBe("a");
      expect(claim.delivery.attempt).toBe(1);
      expect(engine.rows().map(({ status, attempts }) => [status, attempts])).toEqual([
        [2, 1],
        [1, 1],
        [0, 0],
        [0, 0],
      ]);
      expect(statsOf(engine)).toEqual({ ready: 2, processing: 1, acked: 1, failed: 0 });
      expect(driver.count(SQL.put)).toBe(2 * 3);
      expect(driver.autocommitted).toEqual([]);
    });
  });

  test("but has happened is a success, and the batch is not run again", () => {
    const { engine, driver, lease } = openWithLease();
    driver.plant({ at: "COMMIT", error: error("IOERR_FSYNC"), really: "executes" });
    const ack = engine.ack(lease);
    const puts = [engine.put("a"), engine.putMany(["b", "c"])];
    const claim = engine.claim();
    engine.run();

    expect(ack.answer).toMatchObject({ settled: "acked" });
    expect(puts.flatMap(({ put }) => put ?? [])).toEqual([2, 3, 4].map((id) => ({ id, inserted: true })));
    expect(engine.textOf(claim.delivery)).toBe("a");
    expect(engine.stored()).toEqual(["job", "a", "b", "c"]);
    expect(driver.count(SQL.put)).toBe(3);
    expect(driver.count(SQL.claim)).toBe(1);
    expect(statsOf(engine)).toEqual({ ready: 2, processing: 1, acked: 1, failed: 0 });
  });
});

/** What a batch of one command can be, and how it is answered. */
const COMMANDS: readonly {
  readonly command: string;
  readonly sql: string;
  readonly give: (engine: TestEngine, lease: Delivery) => Call;
  readonly answer: object;
}[] = [
  { command: "put", sql: SQL.put, give: (engine) => engine.put("a"), answer: { put: [{ id: 2, inserted: true }] } },
  {
    command: "put with a jobId",
    sql: SQL.put,
    give: (engine) => engine.put("a", { jobId: "new" }),
    answer: { put: [{ id: 2, inserted: true }] },
  },
  {
    command: "putMany of duplicates",
    sql: SQL.put,
    give: (engine) => engine.putMany(["a", "b", "c"], { jobId: "same" }),
    answer: {
      put: [
        { id: 2, inserted: true },
        { id: 2, inserted: false },
        { id: 2, inserted: false },
      ],
    },
  },
  {
    command: "claim",
    sql: SQL.claim,
    give: (engine) => engine.claim(),
    answer: { claimed: [{ id: 1, attempt: 2 }] },
  },
  {
    command: "dispatch",
    sql: SQL.putEvent,
    give: (engine) => engine.dispatch([{ identity: { key: "k", fingerprint: "f" } }]),
    answer: { dispatched: [[{ id: 2, inserted: true }]] },
  },
  {
    command: "ack with an emission",
    sql: SQL.putEvent,
    give: (engine, lease) => engine.emit(lease, [{}]),
    answer: { settled: "acked" },
  },
  { command: "ack", sql: SQL.ack, give: (engine, lease) => engine.ack(lease), answer: { settled: "acked" } },
  {
    command: "nack",
    sql: SQL.nack,
    give: (engine, lease) =>
      engine.settle(lease, { event: "nack", delayMs: 0, lastError: "E: e", exhaustedReason: "retries_exhausted" }),
    answer: { settled: "ready" },
  },
  {
    command: "fail",
    sql: SQL.fail,
    give: (engine, lease) =>
      engine.settle(lease, { event: "fail", lastError: "E: e", reason: "rejected", category: undefined }),
    answer: { settled: "failed" },
  },
  {
    command: "release",
    sql: SQL.release,
    give: (engine, lease) => engine.settle(lease, { event: "release" }),
    answer: { settled: "ready" },
  },
  {
    command: "extend",
    sql: SQL.extend,
    give: (engine, lease) => engine.extend(lease, 30_000),
    answer: { extended: expect.any(Number) },
  },
];

describe.each(COMMANDS)("a lone $command whose COMMIT fails", ({ command, sql, give, answer }) => {
  function prepare(): ReturnType<typeof openWithLease> {
    const opened = openWithLease();
    if (command !== "claim") return opened;
    opened.engine.settle(opened.lease, { event: "nack", delayMs: 0, lastError: "", exhaustedReason: "rejected" });
    opened.engine.run();
    return opened;
  }

  test("but has happened is not carried out again", () => {
    const { engine, driver, lease } = prepare();
    driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "executes" });
    driver.log.length = 0;
    const call = give(engine, lease);
    engine.step();
    const once = driver.count(sql);
    expect(call.answer).toMatchObject(answer);
    expect(once).toBe(command === "putMany of duplicates" ? 3 : 1);
    if (command === "extend") expect(engine.rows()[0]?.["lease_until"]).toBe(call.answer?.extended);
  });

  test("and has not happened is carried out once more", () => {
    const { engine, driver, lease } = prepare();
    driver.plant({ at: "COMMIT", error: FAILED_FSYNC });
    driver.log.length = 0;
    const call = give(engine, lease);
    engine.step();
    expect(call.answer).toMatchObject(answer);
    expect(driver.count(sql)).toBe(command === "putMany of duplicates" ? 6 : 2);
    expect(engine.rows().every(({ attempts }) => Number(attempts) <= 2)).toBe(true);
    const counted = engine.rows(
      "SELECT queue, sum(status = 0) ready, sum(status = 1) processing, sum(status = 2) acked, sum(status = 3) failed FROM messages GROUP BY queue",
    );
    expect(statsOf(engine)).toEqual({ ...counted[0], queue: undefined });
  });
});

test("a COMMIT of events for several queues that has happened is recognised by any of them that is new", () => {
  const { engine, driver } = openFaulty();
  engine.dispatch([{ jobId: "known", queues: ["default", "other"] }]);
  engine.run();
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "executes" });
  const dispatch = engine.dispatch([
    { jobId: "known", queues: ["default", "other"] },
    { jobId: "known", queues: ["other", "new"] },
  ]);
  engine.run();
  expect(dispatch.answer?.dispatched).toEqual([
    [
      { id: 1, inserted: false },
      { id: 2, inserted: false },
    ],
    [
      { id: 2, inserted: false },
      { id: expect.any(Number), inserted: true },
    ],
  ]);
  expect(engine.stored()).toHaveLength(3);
});

test("a lease that ended at the same moment before its extension is no sign that a COMMIT has happened", () => {
  const { engine, driver, lease } = openWithLease();
  engine.clock.wall = lease.leaseUntil - 4000;
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC });
  const extend = engine.extend(lease, 4000);
  const put = engine.put("with it");
  engine.run();
  expect(extend.answer).toMatchObject({ extended: lease.leaseUntil });
  expect(put.put).toEqual([{ id: 2, inserted: true }]);
  expect(engine.stored()).toEqual(["job", "with it"]);
});

describe("a lease that somebody else ended in the very millisecond of a COMMIT that failed", () => {
  const MOVED = "UPDATE messages SET receipt = NULL, lease_until = NULL";

  function failBeside(foreign: (now: number) => string): { ack: Call; nack: Call; put: Call; engine: TestEngine } {
    const { engine, driver } = openFaulty();
    engine.putMany(["one", "two"]);
    const claim = engine.claim({ limit: 2 });
    engine.run();
    const [one, two] = claim.claimed as [Delivery, Delivery];
    driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "rolls back" });
    const now = engine.clock.wall;
    driver.plant({ at: "BEGIN IMMEDIATE", after: 1, strikes: () => engine.foreign(foreign(now)) });
    const ack = engine.ack(one);
    const nack = engine.settle(two, {
      event: "nack",
      delayMs: 0,
      lastError: "no",
      exhaustedReason: "retries_exhausted",
    });
    const put = engine.put("three");
    engine.run();
    return { ack, nack, put, engine };
  }

  test("is no sign that its job was acknowledged", () => {
    const { ack, nack, put, engine } = failBeside(
      (now) => `${MOVED}, status = 3, updated_at = ${now} WHERE id IN (1, 2)`,
    );
    expect([ack, nack].map(({ answer }) => answer?.refused)).toEqual(["lost", "lost"]);
    expect(put.put).toEqual([{ id: 3, inserted: true }]);
    expect(engine.stored()).toEqual(["one", "two", "three"]);
  });

  test("confirms nothing that came with it, where it looks the same", () => {
    const { ack, nack, put, engine } = failBeside((now) => `${MOVED}, status = 0, updated_at = ${now} WHERE id = 2`);
    expect([ack, nack].map(({ answer }) => answer)).toMatchObject([{ settled: "acked" }, { refused: "lost" }]);
    expect(put.put).toEqual([{ id: 3, inserted: true }]);
    expect(engine.stored()).toEqual(["one", "two", "three"]);
  });
});

describe("a put whose COMMIT fails", () => {
  const ROW =
    "SELECT queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at FROM messages";

  test("and has not happened is not taken for the same job of somebody else, put in its place in the same millisecond", () => {
    const { engine, driver } = openFaulty();
    engine.put("job");
    engine.run();
    driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "rolls back" });
    const twin = `INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at,
      updated_at) ${ROW} WHERE id = 1`;
    driver.plant({ at: "BEGIN IMMEDIATE", after: 1, strikes: () => engine.foreign(twin) });
    const put = engine.put("job");
    engine.run();
    expect(put.put).toEqual([{ id: 3, inserted: true }]);
    expect(engine.stored()).toEqual(["job", "job", "job"]);
  });

  test("but has happened is not repeated because others have done the job, and deleted it, before anybody could look", () => {
    const { engine, driver } = openFaulty();
    driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "executes" });
    driver.plant({ at: "BEGIN IMMEDIATE", after: 1, strikes: () => engine.foreign("DELETE FROM messages") });
    const put = engine.put("job");
    engine.run();
    expect(put.put).toEqual([{ id: 1, inserted: true }]);
    expect(engine.stored()).toEqual([]);
  });
});

describe("while other programs come and go", () => {
  /** So many more have come. The storage remembers a thousand. */
  const come = (engine: TestEngine, programs: number): void => {
    engine.foreign(`INSERT INTO localqueue_commits (engine, number)
      WITH RECURSIVE program (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM program LIMIT ${programs}) SELECT -i, 1 FROM program`);
    engine.foreign(
      "DELETE FROM localqueue_commits WHERE arrival <= (SELECT max(arrival) FROM localqueue_commits) - 1000",
    );
  };

  test.each(["executes", "rolls back"] as const)(
    "what became of a COMMIT that fails is known, too, to one that was forgotten (COMMIT really: %s)",
    (really) => {
      const { engine, driver } = openFaulty();
      engine.put("first");
      engine.run();
      come(engine, 1000);
      driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really });
      const put = engine.put("second");
      engine.run();
      expect(put.put).toEqual([{ id: 2, inserted: true }]);
      expect(engine.stored()).toEqual(["first", "second"]);
      expect(engine.rows("SELECT count(*) AS programs FROM localqueue_commits")).toEqual([{ programs: 1000 }]);
    },
  );

  test.each([
    ["a thousand others came", (engine: TestEngine) => come(engine, 1000)],
    ["the table is gone", (engine: TestEngine) => engine.foreign("DROP TABLE localqueue_commits")],
  ])("nobody claims to know if %s before anybody could look", (_, strikes) => {
    const { engine, driver } = openFaulty();
    for (const payload of ["first", "second"]) {
      engine.put(payload);
      engine.run();
    }
    driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "executes" });
    driver.plant({ at: "BEGIN IMMEDIATE", after: 1, strikes: () => strikes(engine) });
    const put = engine.put("third");
    engine.run();
    expect(put.error).toMatchObject({ outcome: "unknown" });
    expect(engine.stored()).toEqual(["first", "second", "third"]);
    const next = engine.put("fourth");
    engine.run();
    expect(next.put).toEqual([{ id: 4, inserted: true }]);
  });
});

describe("a look what became of a COMMIT that finds no room, and is repeated with what was kept for that", () => {
  const FULL = sqliteError("FULL");
  const LOOKS: readonly (readonly [string, Fault])[] = [
    ["its record does not fit", { at: SQL.recordLook, error: FULL }],
    ["its own COMMIT has not happened", { at: "COMMIT", after: 1, error: FULL, really: "rolls back" }],
    ["its own COMMIT says so, and has happened", { at: "COMMIT", after: 1, error: FULL, really: "executes" }],
  ];

  describe.each(LOOKS)("(%s)", (_, fault) => {
    test.each(["executes", "rolls back"] as const)("tells the truth (COMMIT really: %s)", (really) => {
      const { engine, driver, lease } = openWithLease();
      engine.run();
      driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really });
      driver.plant(fault);
      const [put, ack] = [engine.put("second"), engine.ack(lease)];
      engine.run();
      expect(engine.stored().includes("second")).toBe(put.put !== undefined);
      expect(put.put ?? put.error).toMatchObject(put.put ? [{ inserted: true }] : { outcome: "failed" });
      expect(ack.answer ?? ack.error).toMatchObject(really === "executes" || put.put ? { settled: "acked" } : {});
      expect(engine.rows()[0]?.["status"]).toBe(ack.answer?.settled === "acked" ? 2 : 1);
    });
  });
});

test("who only looks leaves no record of a COMMIT, for which others would look in turn", () => {
  const { engine } = openFaulty();
  engine.put("job");
  engine.run();
  const version = (): unknown => engine.rows("SELECT sum(number) AS number FROM localqueue_commits");
  const before = version();
  const [stranger, removal] = [engine.ack({ id: 1, receipt: "none" }), engine.alter("remove", 7)];
  engine.run();
  expect(stranger.answer).toMatchObject({ refused: "lost" });
  expect(removal.answer).toMatchObject({ changed: 0 });
  expect(version()).toEqual(before);
});

test.each(["nack", "release"] as const)(
  "a %s that has happened in a COMMIT that fails is not called lost because somebody else holds the job already",
  (event) => {
    const { engine, driver, lease } = openWithLease();
    driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "executes" });
    // Before anybody can look what became of it.
    const strikes = (): void =>
      engine.foreign(
        "UPDATE messages SET status = 1, receipt = 'theirs', lease_until = 9e15, updated_at = updated_at + 1",
      );
    driver.plant({ at: "BEGIN IMMEDIATE", after: 1, strikes });
    const move =
      event === "nack"
        ? { event, delayMs: 0, lastError: undefined, exhaustedReason: "retries_exhausted" as const }
        : { event };
    const settle = engine.settle(lease, move);
    engine.run();
    expect(settle.answer).toMatchObject({ settled: "ready" });
  },
);

test("a lease that was lost before a COMMIT failed is lost", () => {
  const { engine, driver, lease } = openWithLease();
  engine.foreign("UPDATE messages SET receipt = 'theirs'");
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "nothing" });
  const ack = engine.ack(lease);
  engine.put("beside it");
  engine.run();
  expect(ack.answer).toMatchObject({ refused: "lost" });
});

test("a conflict with an event whose COMMIT fails is none: they are told the same", () => {
  const { engine, driver, lease } = openWithLease();
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC });
  driver.plant({ at: "COMMIT", after: 2, error: FAILED_FSYNC });
  const identity = { key: "k", fingerprint: "f" };
  const first = engine.dispatch([{ identity }]);
  const others = [
    engine.dispatch([{ jobId: "2", identity: { ...identity, fingerprint: "g" } }]),
    engine.emit(lease, [{ jobId: "3", identity: { ...identity, fingerprint: "g" } }]),
  ];
  engine.run();
  for (const { error } of [first, ...others]) expect(error).toMatchObject({ code: "IO", outcome: "failed" });
  expect(engine.stored()).toEqual(["job"]);
  expect(statsOf(engine)).toEqual({ ready: 0, processing: 1, acked: 0, failed: 0 });
});

test("a COMMIT that fails twice is not tried a third time", () => {
  const { engine, driver } = openFaulty();
  // The first, and the one of the repetition; the verification between them succeeds.
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC });
  driver.plant({ at: "COMMIT", after: 2, error: FAILED_FSYNC });
  const put = engine.put("a");
  engine.run();
  expect(put.error).toMatchObject({ code: "IO", outcome: "failed" });
  expect(driver.count(SQL.put)).toBe(2);
  expect(engine.stored()).toEqual([]);
  const next = engine.put("next");
  engine.run();
  expect(next.put).toMatchObject([{ inserted: true }]);
});

test("an extension of a lease whose COMMIT fails twice has certainly failed", () => {
  const { engine, driver, lease } = openWithLease();
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC });
  driver.plant({ at: "COMMIT", after: 2, error: FAILED_FSYNC });
  const extension = engine.extend(lease, 20_000);
  engine.run();
  expect(driver.count(SQL.extend)).toBe(2);
  expect(extension.error).toMatchObject({ code: "IO", outcome: "failed" });
});

test("a repetition whose transaction is lost fails its culprit alone", () => {
  const { engine, driver } = openFaulty();
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC });
  driver.plant({ at: SQL.put, with: payloadIs("culprit"), after: 1, error: sqliteError("FULL"), really: "rolls back" });
  const [a, culprit, b] = [engine.put("a"), engine.put("culprit"), engine.put("b")];
  engine.run();
  expect(culprit.error).toMatchObject({ code: "DISK_FULL", outcome: "failed" });
  expect([a.put, b.put]).toMatchObject([[{ inserted: true }], [{ inserted: true }]]);
  expect(engine.stored()).toEqual(["a", "b"]);
});

test("a COMMIT that has happened is recognised even if later steps of its batch changed the same job again", () => {
  const { engine, driver, lease } = openWithLease();
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "executes" });
  const [extend, ack, put] = [engine.extend(lease, 30_000), engine.ack(lease), engine.put("once")];
  engine.run();
  expect(extend.answer).toMatchObject({ extended: expect.any(Number) });
  expect(ack.answer).toMatchObject({ settled: "acked" });
  expect(put.put).toEqual([{ id: 2, inserted: true }]);
  expect(engine.stored()).toEqual(["job", "once"]);
  expect(statsOf(engine)).toEqual({ ready: 1, processing: 0, acked: 1, failed: 0 });
});

test("who was refused by a batch whose COMMIT fails is told once", () => {
  const { engine, driver, lease } = openWithLease();
  driver.plant({ at: "COMMIT", error: FAILED_FSYNC });
  driver.plant({ at: SQL.put, with: payloadIs("bad"), times: 2, error: sqliteError("CONSTRAINT") });
  const [bad, good, stranger] = [engine.put("bad"), engine.put("good"), engine.ack({ ...lease, receipt: "none" })];
  engine.run();
  expect(bad.error).toMatchObject({ outcome: "failed" });
  expect(good.put).toMatchObject([{ inserted: true }]);
  expect(stranger.answer).toMatchObject({ refused: "lost" });
  expect(engine.stored()).toEqual(["job", "good"]);
});

describe("when neither COMMIT nor its verification succeeds", () => {
  const unverifiable: readonly (readonly [string, Fault])[] = [
    ["the lock is somebody else's", { at: "BEGIN IMMEDIATE", after: 1, times: 60, error: sqliteError("BUSY") }],
    ["the device still fails", { at: "COMMIT", after: 1, error: FAILED_FSYNC }],
    ["the file cannot be opened", { at: "PRAGMA user_version", error: sqliteError("CANTOPEN") }],
  ];

  describe.each(unverifiable)("because %s", (_, obstacle) => {
    test.each([
      ["executes", ["job", "a"]],
      ["nothing", ["job"]],
    ] as const)("the outcome is unknown (COMMIT really: %s)", (really, stored) => {
      const { engine, driver, lease } = openWithLease();
      driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really });
      driver.plant(obstacle);
      const [put, ack, claim] = [engine.put("a"), engine.ack(lease), engine.claim()];
      engine.step();
      expect(put.error).toMatchObject({ code: "IO", outcome: "unknown" });
      expect(ack.error).toMatchObject({ code: "IO", outcome: "unknown" });
      if (really === "executes") expect(claim.error).toMatchObject({ code: "IO", outcome: "unknown" });
      driver.heal();
      expect(engine.stored()).toEqual(stored);

      const next = engine.put("next");
      engine.run();
      expect(next.put).toMatchObject([{ inserted: true }]);
    });
  });
});

test("a disk that stays full is reported as such; once there is room, work goes on", () => {
  const { engine, driver, lease } = openWithLease();
  driver.plant({ at: "COMMIT", times: Number.POSITIVE_INFINITY, error: sqliteError("FULL"), really: "rolls back" });
  const put = engine.put("a");
  engine.run();
  expect(put.error).toMatchObject({ code: "DISK_FULL" });
  driver.heal();
  engine.elapse(300);
  const [next, ack] = [engine.put("next"), engine.ack(lease)];
  engine.run();
  expect(next.put).toMatchObject([{ inserted: true }]);
  expect(ack.answer).toMatchObject({ settled: "acked" });
  expect(engine.stored()).toEqual(["job", "next"]);
});

test("the verification commits a page of its own, which overwrites what the failed COMMIT may have left", () => {
  const { engine, driver } = openFaulty();
  const observer = loadDriver().open(engine.connection.file);
  const version = (): unknown => observer.prepare("PRAGMA data_version").get()?.["data_version"];
  for (let round = 0; round < 3; round++) {
    driver.heal();
    let before: unknown;
    driver.plant({ at: "COMMIT", error: FAILED_FSYNC, really: "executes" });
    driver.plant({ at: "COMMIT", after: 1, strikes: () => (before = version()) });
    const put = engine.put(`job ${round}`);
    engine.run();
    expect(put.put).toMatchObject([{ inserted: true }]);
    expect(before).toBeDefined();
    expect(version()).not.toBe(before);
  }
  observer.close();
});
