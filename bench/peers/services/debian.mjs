import { spawnSync } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";

const PLACES = [...(process.env.PATH ?? "").split(path.delimiter), "/usr/lib/postgresql/15/bin"];

const find = (name) => PLACES.map((place) => path.join(place, name)).find((file) => fs.existsSync(file));

/** The path of a program; its package is installed first if it is not there, and this is root on Debian. */
export function needed(name, debianPackage) {
  const there = find(name);
  if (there !== undefined) return there;
  if (process.getuid?.() !== 0 || find("apt-get") === undefined) throw new Error(`There is no ${name} here.`);
  console.log(`There is no ${name}: installing Debian's package ${debianPackage}.`);
  // With this run level, the package does not start its own server.
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" };
  const apt = (...args) => spawnSync("apt-get", ["-q", ...args], { env, encoding: "utf8" });
  apt("update");
  const { status, stderr } = apt("install", "-y", "--no-install-recommends", debianPackage);
  if (status !== 0) throw new Error(`Debian's package ${debianPackage} could not be installed: ${stderr.trim()}`);
  return find(name);
}

export function freePort() {
  return new Promise((resolve, reject) => {
    const server = net.createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
