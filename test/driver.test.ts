import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import { runModule } from "./support/child.ts";
import { tempDirectory } from "./support/temp.ts";

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

test.runIf(loadDriver().name === "better-sqlite3").each([
  ["is not installed", undefined, "Install the package better-sqlite3@~12.11"],
  ["was built for another Node", "ERR_DLOPEN_FAILED", "was not built for this Node"],
])("a missing SQLite is told apart: better-sqlite3 %s", (_, code, advice) => {
  const home = tempDirectory();
  cpSync("dist", path.join(home, "dist"), { recursive: true });
  cpSync("package.json", path.join(home, "package.json"));
  const peer = path.join(home, "node_modules", "better-sqlite3");
  mkdirSync(peer, { recursive: true });
  if (code !== undefined) {
    writeFileSync(
      path.join(peer, "index.js"),
      `throw Object.assign(new Error("cannot open it"), { code: "${code}" });`,
    );
  }
  const program = `const { SimpleQueue } = await import("./dist/index.js");
    await new SimpleQueue("./data").put(1).catch((error) => console.log(error.code, error.message));`;
  const said = execFileSync(process.execPath, ["--input-type=module", "--eval", program], { cwd: home });
  expect(said.toString()).toMatch(/^BAD_LOCATION No SQLite found: /);
  expect(said.toString()).toContain(advice);
});
