// Tests the built package together with the Python package of the same name: npm run test:interop [-- ARGUMENTS OF VITEST]
// Each version of that package gets a virtual environment of its own in .interop/, which git ignores.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FOLDER = path.join(ROOT, ".interop");
const {
  current,
  older,
  with: companions,
} = JSON.parse(readFileSync(path.join(ROOT, "test/interop/python/versions.json"), "utf8"));
const LONGEST_MS = 10 * 60_000;

const python = findPython() ?? installPython();
if (python === undefined) {
  giveUp(
    "THERE IS NO PYTHON 3.11 OR LATER WITH venv AND pip HERE.",
    "Install it (Debian, Ubuntu: apt-get install python3 python3-venv), and run this again.",
  );
}
mkdirSync(FOLDER, { recursive: true });
const problem = setUp(current, companions);
if (problem !== undefined) {
  giveUp(
    `THE PYTHON PACKAGE localqueue ${current} COULD NOT BE INSTALLED.`,
    `${problem}\nMake PyPI, or a mirror of it, reachable (pip's own configuration counts), and run this again.`,
  );
}
for (const version of older) {
  const why = setUp(version, []);
  if (why === undefined) continue;
  const what = `VERSION ${version} OF THE PYTHON PACKAGE DOES NOT INSTALL, AND IS NOT TESTED.`;
  print(`${what}\n${why}`);
  if (process.env.CI === "true") process.exit(1);
}
const vitest = ["node_modules/vitest/vitest.mjs", "run", "-c", "vitest.interop.config.ts", ...process.argv.slice(2)];
process.exitCode = spawnSync(process.execPath, vitest, { cwd: ROOT, stdio: "inherit" }).status ?? 1;

/** A Python that is new enough, and can make virtual environments with pip in them. */
function findPython() {
  return ["python3.11", "python3", "python3.12", "python3.13", "python3.14"].find(
    (name) => run(name, ["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"]) === undefined,
  );
}

function installPython() {
  if (process.getuid?.() !== 0 || run("apt-get", ["--version"]) !== undefined) return undefined;
  print("There is no Python 3.11 or later: installing Debian's packages python3 and python3-venv.");
  const options = { env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" } };
  const problems = [
    run("apt-get", ["-q", "update"], options),
    run("apt-get", ["-q", "install", "-y", "--no-install-recommends", "python3", "python3-venv"], options),
  ];
  if (problems[1] !== undefined) print(problems.join("\n"));
  return findPython();
}

/** Installs one version, unless that was done before; returns what went wrong. */
function setUp(version, others) {
  const directory = path.join(FOLDER, version);
  const stamp = path.join(directory, "installed");
  const packages = [`localqueue==${version}`, ...others];
  const isThere = existsSync(stamp) && readFileSync(stamp, "utf8") === packages.join("\n");
  if (isThere && run(interpreter(version), ["-c", "import localqueue"]) === undefined) return undefined;
  print(`Installing ${packages.join(", ")} into .interop/${version}`);
  rmSync(directory, { recursive: true, force: true });
  // One pip is enough: a virtual environment is made much faster without.
  const bare = version === current ? [] : ["--without-pip"];
  const pip = ["-m", "pip", "--disable-pip-version-check", "--python", interpreter(version)];
  const why =
    run(python, ["-m", "venv", ...bare, directory]) ??
    run(interpreter(current), [...pip, "install", "--quiet", "--only-binary", ":all:", ...packages]);
  if (why === undefined) writeFileSync(stamp, packages.join("\n"));
  else rmSync(directory, { recursive: true, force: true });
  return why;
}

function interpreter(version) {
  const parts = process.platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"];
  return path.join(FOLDER, version, ...parts);
}

/** Runs a command quietly; returns what it printed if it failed. */
function run(command, args, options = {}) {
  const { status, error, stdout, stderr } = spawnSync(command, args, {
    encoding: "utf8",
    timeout: LONGEST_MS,
    ...options,
  });
  return status === 0 ? undefined : `${error?.message ?? ""}${stdout ?? ""}${stderr ?? ""}`.trim();
}

function giveUp(what, remedy) {
  print(`\n${what}\nNOTHING WAS TESTED TOGETHER WITH PYTHON.\n${remedy}\n`);
  process.exit(process.env.CI === "true" ? 1 : 0);
}

function print(text) {
  process.stdout.write(`${text}\n`);
}
