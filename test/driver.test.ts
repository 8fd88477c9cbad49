import { expect, test } from "vitest";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import { runModule } from "./support/child.ts";

// A version of Node that has better-sqlite3 here has no `node:sqlite`; told otherwise, it fails to load it.
test.runIf(loadDriver().name === "better-sqlite3")(
  "a `node:sqlite` that Node says it has, and cannot load, is passed over",
  async () => {
    const name = await runModule(`
      import { loadDriver } from "dist/storage/sqlite/driver.js";
      Object.defineProperty(process, "versions", { value: { ...process.versions, sqlite: "3.54.1" } });
      console.log(JSON.stringify(loadDriver().name));
    `);
    expect(name).toBe("better-sqlite3");
  },
);
