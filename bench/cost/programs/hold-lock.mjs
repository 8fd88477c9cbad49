// Takes SQLite's write lock, says so, and holds it for a while.
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { loadDriver } from "../../../dist/storage/sqlite/driver.js";

const { directory, forMs } = JSON.parse(process.argv[2]);
const db = loadDriver().open(path.join(directory, "localqueue.db"));
db.exec("PRAGMA busy_timeout = 30000");
db.exec("BEGIN IMMEDIATE");
process.send("holding");
await sleep(forMs);
db.exec("COMMIT");
db.close();
process.send("released");
