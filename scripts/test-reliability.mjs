// Runs the proof of the guarantees: npm run test:reliability [-- model kills …]
// Some layers need more than Node: as root on Debian what is missing is installed, otherwise the layer fails.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FOLDER = path.join(ROOT, "test", "reliability");

/** What a layer may need: how to find it, and the Debian package that brings it. */
const TOOLS = {
  root: { found: () => process.getuid?.() === 0 },
  strace: { found: () => onPath("strace"), from: "strace" },
  faketime: { found: () => libfaketime() !== undefined, from: "faketime" },
  mount: { found: () => onPath("mount"), from: "mount" },
  ext4: { found: () => onPath("mkfs.ext4"), from: "e2fsprogs" },
  perl: { found: () => onPath("perl"), from: "perl" },
  loop: { found: () => existsSync("/dev/loop-control") },
};

/** What the layers need beside Node, by the name of their file. */
const NEEDS = {
  syscalls: ["root", "strace"],
  power: ["root", "mount", "loop", "ext4", "perl"],
  "environment.disk": ["root", "mount"],
  "environment.clock": ["faketime"],
};

const layers = layersToRun(process.argv.slice(2));
install(new Set(layers.flatMap((layer) => missing(layer))));
const skipped = layers.filter((layer) => missing(layer).length > 0);
for (const layer of skipped) print(`SKIPPED ${layer}: there is no ${missing(layer).join(", no ")} here`);
const files = layers.filter((layer) => !skipped.includes(layer)).map((layer) => `test/reliability/${layer}.test.ts`);
const args = ["node_modules/vitest/vitest.mjs", "run", "--config", "vitest.reliability.config.ts", ...files];
// Without a file to run, Vitest would run all.
const code = files.length === 0 ? 1 : spawnSync(process.execPath, args, { cwd: ROOT, stdio: "inherit" }).status;
if (skipped.length > 0)
  print(`${skipped.length} of ${layers.length} layers were skipped: nothing is proved about them.`);
if (files.length === 0 && process.env.CLOSING_LINE_FILE) {
  writeFileSync(process.env.CLOSING_LINE_FILE, `0 passed, ${skipped.length} failed\n`);
}
process.exitCode = skipped.length > 0 ? 1 : (code ?? 1);

/** All layers, or those whose name begins with one of the words. */
function layersToRun(words) {
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

function missing(layer) {
  return (NEEDS[layer] ?? []).filter((tool) => !TOOLS[tool].found());
}

function install(tools) {
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

function print(text) {
  process.stdout.write(`${text}\n`);
}
