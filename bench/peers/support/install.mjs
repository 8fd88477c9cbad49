import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { fileURLToPath } from "node:url";
import { pythonOf } from "./client.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Installs what the lock files name, unless that was done before; returns what went wrong, by folder. */
export function installPeers() {
  const problems = {};
  for (const folder of ["", "liteque"]) {
    const place = `${root}${folder}`;
    const lock = fs.readFileSync(`${place}/package-lock.json`, "utf8");
    const stamp = `${place}/node_modules/.installed`;
    if (fs.existsSync(stamp) && fs.readFileSync(stamp, "utf8") === lock) continue;
    console.log(`Installing the peers of bench/peers/${folder}, which may compile for some minutes.`);
    const args = ["ci", "--no-audit", "--no-fund", "--loglevel=error"];
    const { status, error } = spawnSync("npm", args, { cwd: place, stdio: ["ignore", "ignore", "inherit"] });
    if (status === 0) fs.writeFileSync(stamp, lock);
    else problems[folder] = `npm could not install it (${error?.message ?? `exit code ${status}`})`;
  }
  return problems;
}

/** Why a peer cannot take part, if it cannot. */
export function missing({ adapter }, problems) {
  if (adapter.runtime === "python" && !fs.existsSync(pythonOf())) return "`npm run test:interop` installs it";
  if (adapter.package === undefined) return undefined;
  return problems[adapter.folder ?? ""];
}

/** The version of a peer that is installed. */
export function versionOf({ adapter }) {
  if (adapter.runtime === "python") {
    const code = "import importlib.metadata as it; print(it.version('localqueue'))";
    return spawnSync(pythonOf(), ["-c", code], { encoding: "utf8" }).stdout.trim();
  }
  const file =
    adapter.package === undefined
      ? `${root}../../package.json`
      : `${root}${adapter.folder ?? "."}/node_modules/${adapter.package}/package.json`;
  return JSON.parse(fs.readFileSync(file, "utf8")).version;
}
