// Reads again and again, each time in a transaction of some 15 ms, until the test closes the input.
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";
import { input, say, told } from "./lines.mjs";

const db = loadDriver().open(path.join(input.location, "localqueue.db"));
db.exec("PRAGMA busy_timeout = 5000");
let done = false;
const untilTold = async () => {
  for await (const _ of told());
  done = true;
};
void untilTold();
say("reading");
while (!done) {
  db.exec("BEGIN");
  db.prepare("SELECT count(*) FROM messages").get();
  await sleep(10 + Math.random() * 10);
  db.exec("COMMIT");
}
db.close();
