// Says which runtime, SQLite library and SQLite the package uses here.
import { loadDriver } from "../../dist/storage/sqlite/driver.js";

const { bun, deno, node } = process.versions;
const { name: driver, sqliteVersion: sqlite } = loadDriver();
console.log(JSON.stringify({ version: bun ?? deno ?? node, sqlite, driver }));
