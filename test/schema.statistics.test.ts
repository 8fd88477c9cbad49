import path from "node:path";
import { describe, expect, test } from "vitest";
import type { Database, Driver } from "../dist/storage/sqlite/driver.js";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import { SQL } from "../dist/storage/sqlite/statements.js";
import { TestEngine } from "./support/engine-harness.ts";
import { explain } from "./support/plans.ts";
import { tempDirectory } from "./support/temp.ts";

/** These find a list of rows by their ids, which is not worth it where there are few. */
const BY_IDS = ["ackRows", "promote", "expire"] as const;

/** The real library, and the database that it opened last. */
class Watched implements Driver {
  readonly name;
  readonly sqliteVersion;
  database: Database | undefined;
  readonly #real = loadDriver();

  constructor() {
    this.name = this.#real.name;
    this.sqliteVersion = this.#real.sqliteVersion;
  }

  open(file: string): Database {
    this.database = this.#real.open(file);
    return this.database;
  }
}

function walks(database: Database): string[] {
  return BY_IDS.filter((name) => explain(database, SQL[name]).some((step) => step.startsWith("SCAN messages")));
}

describe("after an ANALYZE of a file with a single job, no statement walks through all jobs", () => {
  function openWithOne(directory: string): { engine: TestEngine; driver: Watched } {
    const driver = new Watched();
    const engine = new TestEngine({ directory, driver });
    engine.put("job");
    engine.run();
    return { engine, driver };
  }

  test("of a program that opens the file then", () => {
    const directory = tempDirectory();
    const { engine } = openWithOne(directory);
    engine.foreign("ANALYZE");
    engine.close();
    // What it would be like otherwise.
    const other = loadDriver().open(path.join(directory, "localqueue.db"));
    expect(walks(other)).toEqual([...BY_IDS]);
    other.close();

    const { driver } = openWithOne(directory);
    expect(walks(driver.database as Database)).toEqual([]);
  });

  test("of a program that has it open", () => {
    const { engine, driver } = openWithOne(tempDirectory());
    engine.foreign("ANALYZE");
    engine.put("another job");
    engine.run();
    expect(walks(driver.database as Database)).toEqual([]);
  });

  test("and what is known of other tables stays", () => {
    const { engine } = openWithOne(tempDirectory());
    engine.foreign(
      "CREATE TABLE theirs (x); CREATE INDEX theirs_x ON theirs(x); INSERT INTO theirs VALUES (1); ANALYZE",
    );
    engine.put("another job");
    engine.run();
    expect(engine.rows("SELECT DISTINCT tbl FROM sqlite_stat1 WHERE tbl IN ('messages', 'theirs')")).toEqual([
      { tbl: "theirs" },
    ]);
  });
});
