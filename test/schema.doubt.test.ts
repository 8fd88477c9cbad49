import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import { TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver, sqliteError } from "./support/faulty-driver.ts";
import { PYTHON_INDEX } from "./support/python-files.ts";
import { tempDirectory } from "./support/temp.ts";

const COUNTED = `SELECT coalesce(sum(status = 0), 0) AS ready, coalesce(sum(status = 1), 0) AS processing,
  coalesce(sum(status = 2), 0) AS acked, coalesce(sum(status = 3), 0) AS failed FROM messages`;

function open(): { engine: TestEngine; driver: FaultyDriver } {
  const driver = new FaultyDriver();
  const engine = new TestEngine({ directory: tempDirectory(), driver });
  return { engine, driver };
}

function expectRightCounts(engine: TestEngine): void {
  const stats = engine.stats();
  engine.run();
  expect(stats.answer?.stats).toEqual(engine.rows(COUNTED)[0]);
}

describe.each([
  {
    what: "a COMMIT that fails and rolls back",
    fault: { at: "COMMIT", error: sqliteError("FULL"), really: "rolls back" },
  },
  { what: "a COMMIT that fails and leaves the transaction", fault: { at: "COMMIT", error: sqliteError("FULL") } },
  {
    what: "a statement that ends the transaction",
    fault: { at: SQL.put, error: sqliteError("FULL"), really: "rolls back" },
  },
  { what: "counts that cannot be written", fault: { at: SQL.count, error: sqliteError("FULL") } },
] as const)("when $what undoes what was added to the layout", ({ fault }) => {
  test("it is added again: the counts stay right although a Python client came", () => {
    const { engine, driver } = open();
    engine.put("a");
    engine.run();
    engine.foreign(PYTHON_INDEX);
    driver.plant(fault);
    engine.put("b");
    engine.run();
    driver.heal();
    for (const payload of ["c", "d"]) engine.put(payload);
    engine.run();
    expectRightCounts(engine);
  });

  test("it is added again: a lost index does not stop claims for good", () => {
    const { engine, driver } = open();
    engine.put("a");
    engine.run();
    engine.foreign("DROP INDEX localqueue_ready");
    driver.plant(fault);
    engine.put("b");
    engine.run();
    driver.heal();
    const claim = engine.claim();
    engine.run();
    expect(claim.error).toBeUndefined();
    expect(engine.textOf(claim.delivery)).toBe("a");
  });
});

test("what somebody does between the reopening of a connection and its first transaction is noticed", () => {
  const { engine, driver } = open();
  engine.foreign("CREATE TABLE somebody (x)");
  engine.put("a");
  engine.run();
  engine.connection.close();
  driver.plant({ at: "BEGIN IMMEDIATE", strikes: () => engine.foreign("DROP INDEX localqueue_ready") });
  engine.put("b");
  engine.run();
  const claim = engine.claim();
  engine.run();
  expect(claim.error).toBeUndefined();
});
