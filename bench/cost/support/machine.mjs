import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import { loadDriver } from "../../../dist/storage/sqlite/driver.js";

/** What the figures were taken on, in one line. */
export function describeMachine(directory) {
  const cpus = os.cpus();
  const [load] = os.loadavg();
  return [
    `${cpus.length} × ${cpus[0]?.model.trim() ?? "unknown CPU"}`,
    `${Math.round(os.totalmem() / 1024 ** 3)} GB of memory`,
    `${os.type()} ${os.release()}`,
    `${filesystemOf(directory)} at the temporary directory`,
    `Node.js ${process.versions.node}`,
    library(),
    `load average ${load.toFixed(1)} at the start`,
    new Date().toISOString().slice(0, 10),
  ].join(", ");
}

/** By the mount table, where there is one; `statfs` knows only a number. */
function filesystemOf(directory) {
  try {
    const mounts = fs.readFileSync("/proc/self/mounts", "utf8").trim().split("\n");
    const holding = mounts
      .map((line) => line.split(" "))
      .filter(([, place]) => place === "/" || directory === place || directory.startsWith(`${place}/`));
    // Of two mounts on the same place, the later one is what is seen.
    const [, , type] = holding.reduce((best, mount) => (mount[1].length >= best[1].length ? mount : best));
    return type;
  } catch {
    return `file system of type 0x${fs.statfsSync(directory).type.toString(16)}`;
  }
}

function library() {
  const { name, sqliteVersion } = loadDriver();
  if (name === "node:sqlite") return `node:sqlite with SQLite ${sqliteVersion}`;
  const { version } = createRequire(import.meta.url)(`${name}/package.json`);
  return `${name} ${version} with SQLite ${sqliteVersion}`;
}
