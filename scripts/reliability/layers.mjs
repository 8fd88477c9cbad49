// The layers of the proof: which there are, what they need beside Node, and how to come by that.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const FOLDER = path.join(ROOT, "test", "reliability");

/** What a layer may need: how to find it, and the Debian package that brings it. */
const TOOLS = {
  root: { found: () => process.getuid?.() === 0 },
  strace: { found: () => onPath("strace"), from: "strace" },
  prlimit: { found: () => onPath("prlimit"), from: "util-linux" },
  faketime: { found: () => libfaketime() !== undefined, from: "faketime" },
  mount: { found: () => onPath("mount"), from: "mount" },
  ext4: { found: () => onPath("mkfs.ext4"), from: "e2fsprogs" },
  perl: { found: () => onPath("perl"), from: "perl" },
  loop: { found: () => existsSync("/dev/loop-control") },
};

/** What the layers need beside Node, by the name of their file. */
const NEEDS = {
  syscalls: ["root", "strace"],
  "short-writes": ["root", "strace", "prlimit"],
  power: ["root", "mount", "loop", "ext4", "perl"],
  "environment.disk": ["root", "mount", "loop", "ext4", "perl"],
  "environment.clock": ["faketime"],
};

/** All layers, or those whose name begins with one of the words. */
export function layersToRun(words) {
  const all = readdirSync(FOLDER)
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => name.slice(0, -".test.ts".length))
    .sort();
  const unknown = words.filter((word) => !all.some((layer) => layer.startsWith(word)));
  if (unknown.length > 0) {
    print(`There is no ${unknown.join(", ")} here, only ${all.join(", ")}.`);
    process.exit(2);
  }
  return words.length === 0 ? all : all.filter((layer) => words.some((word) => layer.startsWith(word)));
}

/** What a layer needs and is not there. */
export function missing(layer) {
  return (NEEDS[layer] ?? []).filter((tool) => !TOOLS[tool].found());
}

/** Installs what is missing, as root on Debian. */
export function install(layers) {
  const tools = new Set(layers.flatMap(missing));
  const packages = [...tools].flatMap((tool) => TOOLS[tool].from ?? []);
  if (packages.length === 0) return;
  if (!(TOOLS.root.found() && onPath("apt-get"))) {
    print(`Missing, and to be installed by hand here: ${packages.join(" ")}`);
    return;
  }
  print(`Missing: ${packages.join(" ")}. Installing with apt-get.`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  try {
    execFileSync("apt-get", ["-qq", "update"], { env, stdio: "inherit" });
    execFileSync("apt-get", ["-qq", "install", "-y", "--no-install-recommends", ...packages], {
      env,
      stdio: "inherit",
    });
  } catch (error) {
    print(`apt-get failed: ${error.message}`);
  }
}

function onPath(program) {
  const folders = [...(process.env.PATH ?? "").split(path.delimiter), "/usr/sbin", "/sbin"];
  return folders.some((folder) => existsSync(path.join(folder, program)));
}

function libfaketime() {
  const places = ["x86_64-linux-gnu", "aarch64-linux-gnu"].map((arch) => `/usr/lib/${arch}/faketime/libfaketime.so.1`);
  return places.find(existsSync);
}

export function print(text) {
  process.stdout.write(`${text}\n`);
}
