import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

/**
 * The path of a runtime's binary below `folder`, fetched from the npm registry if it is not there yet. npm checks each
 * package against the hash that the registry gives for it; no script of a package is run.
 */
export function fetchRuntime(folder, { packages, version, binary }) {
  const name = process.platform === "linux" && glibc() ? packages[process.arch] : undefined;
  if (name === undefined) {
    throw new Error(`only Linux with glibc on x64 or arm64 is supported, this is ${process.platform} ${process.arch}`);
  }
  const home = path.join(folder, "node_modules", name);
  if (installedVersion(home) !== version) {
    const quiet = ["--loglevel=error", "--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts"];
    execFileSync("npm", ["install", ...quiet, "--prefix", folder, `${name}@${version}`], {
      stdio: ["ignore", "ignore", "inherit"],
    });
  }
  return path.join(home, binary);
}

function installedVersion(home) {
  const manifest = path.join(home, "package.json");
  return existsSync(manifest) ? JSON.parse(readFileSync(manifest, "utf8")).version : undefined;
}

function glibc() {
  return process.report.getReport().header.glibcVersionRuntime !== undefined;
}
