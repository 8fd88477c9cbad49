// Takes SQLite's write lock and holds it until the test closes the input.
import path from "node:path";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";
import { input, say, told } from "./lines.mjs";

const db = loadDriver().open(path.join(input.location, "localqueue.db"));
db.exec("PRAGMA busy_timeout = 5000");
db.exec("BEGIN IMMEDIATE");
say("holding");
for await (const _ of told());
db.exec("COMMIT");
db.close();
