import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { endAtExit } from "../support/leftovers.mjs";
import { freePort, needed } from "./debian.mjs";

/** PostgreSQL refuses to run as root. */
const USER = "postgres";

/** PostgreSQL with its defaults; without `fsync`, commits are confirmed before they are flushed. */
export async function startPostgres({ fsync }) {
  const bin = path.dirname(fs.realpathSync(needed("postgres", "postgresql-15")));
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "localqueue-peers-postgres-"));
  const data = path.join(directory, "data");
  const asRoot = process.getuid?.() === 0;
  if (asRoot) run("chown", USER, directory);
  const asUser = (program, ...args) => {
    const command = [path.join(bin, program), ...args];
    if (asRoot) run("runuser", "-u", USER, "--", ...command);
    else run(...command);
  };
  asUser("initdb", "-D", data, "-A", "trust", "-U", USER, "--no-sync");
  const port = await freePort();
  const options = [`-p ${port}`, `-k ${directory}`, "-c listen_addresses=", "-c max_connections=300"];
  if (!fsync) options.push("-c synchronous_commit=off");
  asUser("pg_ctl", "-D", data, "-w", "-l", path.join(directory, "log"), "-o", options.join(" "), "start");
  const stop = () => {
    forget();
    asUser("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop");
    fs.rmSync(directory, { recursive: true, force: true });
  };
  const forget = endAtExit(stop);
  const connection = { host: directory, port, user: USER };
  const { default: pg } = await import("pg");
  const query = async (sql) => {
    const client = new pg.Client({ ...connection, database: "postgres" });
    await client.connect();
    await client.query(sql);
    await client.end();
  };
  let databases = 0;
  return {
    pids() {
      const [main] = fs.readFileSync(path.join(data, "postmaster.pid"), "utf8").split("\n");
      const { stdout } = spawnSync("pgrep", ["-P", main], { encoding: "utf8" });
      return [main, ...stdout.trim().split("\n")].map(Number);
    },
    /** Makes a new database, until `end()`. */
    async lend() {
      const database = `bench${++databases}`;
      await query(`CREATE DATABASE ${database}`);
      await query("CHECKPOINT");
      return {
        place: { connection: { ...connection, database } },
        end: () => query(`DROP DATABASE ${database} WITH (FORCE)`),
      };
    },
    stop,
  };
}

function run(command, ...args) {
  const { status, error, stderr } = spawnSync(command, args, {
    encoding: "utf8",
    cwd: "/",
    stdio: ["ignore", "ignore", "pipe"],
  });
  if (status !== 0) throw new Error(`${path.basename(command)} ${args[0]} failed: ${error?.message ?? stderr.trim()}`);
}
