// Takes the lock that all writers need, and holds it until the test closes the input.
import path from "node:path";
import pg from "pg";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";
import { input, say, told } from "./lines.mjs";

const release = await (input.location.startsWith("postgres") ? lockTable() : lockFile());
say("holding");
for await (const _ of told());
await release();

async function lockTable() {
  const url = new URL(input.location);
  const schema = url.searchParams.get("schema");
  url.search = "";
  const client = new pg.Client({ connectionString: url.href });
  await client.connect();
  await client.query(`BEGIN; LOCK TABLE "${schema}".messages IN SHARE ROW EXCLUSIVE MODE`);
  return () => client.end();
}

function lockFile() {
  const db = loadDriver().open(path.join(input.location, "localqueue.db"));
  db.exec("PRAGMA busy_timeout = 5000");
  db.exec("BEGIN IMMEDIATE");
  return () => {
    db.exec("COMMIT");
    db.close();
  };
}
