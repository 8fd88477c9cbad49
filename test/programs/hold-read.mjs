// Begins a transaction that reads, and stays in it until the test closes the input.
import path from "node:path";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";
import { input, say, told } from "./lines.mjs";

const db = loadDriver().open(path.join(input.location, "localqueue.db"));
db.exec("BEGIN");
db.prepare("SELECT count(*) FROM messages").get();
say("reading");
for await (const _ of told());
db.exec("COMMIT");
db.close();
