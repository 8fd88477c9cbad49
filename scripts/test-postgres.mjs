// Tests the built package on a PostgreSQL server of its own: npm run test:postgres [-- ARGUMENTS OF VITEST]
// The server is Debian's package, which root gets installed here, or whichever is on the PATH, or in the folder
// POSTGRES_BIN: see test/support/postgres-server.ts.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const LONGEST_MS = 10 * 60_000;
/** Programs, and the packages of Debian that bring them. */
const PACKAGES = { postgres: "postgresql", pgbouncer: "pgbouncer", ip: "iproute2", openssl: "openssl" };

install(Object.keys(PACKAGES).filter((name) => !isThere(name)));
if (isThere("postgres")) {
  const vitest = ["node_modules/vitest/vitest.mjs", "run", "-c", "vitest.postgres.config.ts", ...process.argv.slice(2)];
  process.exitCode = spawnSync(process.execPath, vitest, { cwd: ROOT, stdio: "inherit" }).status ?? 1;
} else {
  print("\nTHERE IS NO POSTGRESQL SERVER HERE.\nNOTHING WAS TESTED ON POSTGRESQL.");
  print("Install it (Debian, Ubuntu: apt-get install postgresql pgbouncer), and run this again.\n");
  if (process.env.CLOSING_LINE_FILE) writeFileSync(process.env.CLOSING_LINE_FILE, "0 passed, 1 failed\n");
  process.exitCode = 1;
}

function install(missing) {
  if (missing.length === 0 || process.getuid?.() !== 0 || !isThere("apt-get")) return;
  const packages = missing.map((name) => PACKAGES[name]);
  print(`Installing Debian's packages ${packages.join(", ")}.`);
  const options = { encoding: "utf8", timeout: LONGEST_MS, env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" } };
  for (const args of [["update"], ["install", "-y", "--no-install-recommends", ...packages]]) {
    const { status, stdout, stderr } = spawnSync("apt-get", ["-q", ...args], options);
    if (status !== 0) print(`${stdout}${stderr}`);
  }
}

function isThere(name) {
  const debian = "/usr/lib/postgresql";
  const versions = existsSync(debian) ? readdirSync(debian).map((version) => path.join(debian, version, "bin")) : [];
  const chosen = process.env.POSTGRES_BIN === undefined ? [] : [process.env.POSTGRES_BIN];
  const folders = [...versions, ...chosen, ...(process.env.PATH ?? "").split(path.delimiter), "/usr/sbin", "/sbin"];
  return folders.some((folder) => existsSync(path.join(folder, name)));
}

function print(text) {
  process.stdout.write(`${text}\n`);
}
