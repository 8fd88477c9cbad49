// Shows that the proof has teeth: npm run plant [-- a word of a fault's name …]
// Plants one fault after the other into a copy of the sources, and runs what is to notice it. None may survive.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { FAULTS } from "./reliability/faults.mjs";
import { POSTGRES_FAULTS } from "./reliability/postgres-faults.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const COPIED = [
  "src",
  "test",
  "package.json",
  "tsconfig.json",
  "tsconfig.build.json",
  "vitest.config.ts",
  "vitest.postgres.config.ts",
  "vitest.reliability.config.ts",
];
/** How much of a layer has to be enough. */
const ROUNDS = { model: "10", simulation: "100", scheduler: "10", kills: "1", power: "8", "log-prefixes": "1" };
const LONGEST_MS = 5 * 60_000;

const words = process.argv.slice(2);
const chosen = [...FAULTS, ...POSTGRES_FAULTS].filter(
  ({ name }) => words.length === 0 || words.some((word) => name.includes(word)),
);
for (const { name, also, ...change } of chosen) {
  for (const each of also === undefined ? [change] : [change, also]) assertOnce(name, each, ROOT);
}
const copy = mkdtempSync(path.join(tmpdir(), "localqueue-planted-"));
const rows = [];
try {
  for (const part of COPIED) cpSync(path.join(ROOT, part), path.join(copy, part), { recursive: true });
  symlinkSync(path.join(ROOT, "node_modules"), path.join(copy, "node_modules"));
  build();
  const judges = new Map(chosen.flatMap(({ by, on = "sqlite" }) => by.map((each) => [`${each} on ${on}`, [each, on]])));
  for (const [name, [by, on]] of judges) {
    // What fails without a fault notices nothing.
    if (existsSync(testFile(by)) && notices(by, on)) throw new Error(`${name} fails without any fault.`);
  }
  for (const fault of chosen) rows.push({ ...fault, ...plant(fault) });
} finally {
  rmSync(copy, { recursive: true, force: true });
}
print("");
for (const { name, caught, seconds } of rows) print(`${caught ?? "SURVIVED"}\t${seconds} s\t${name}`);
const survivors = rows.filter(({ caught }) => caught === undefined).length;
print(`${rows.length - survivors} caught, ${survivors} survived`);
process.exitCode = survivors === 0 && rows.length > 0 ? 0 : 1;

function plant({ name, by, on, also, ...change }) {
  const startedAt = performance.now();
  const changes = also === undefined ? [change] : [change, also];
  const originals = new Map(changes.map(({ file }) => [file, readFileSync(path.join(copy, file), "utf8")]));
  try {
    for (const each of changes) replaceOnce(name, each);
    build();
    const caught = by.filter((each) => existsSync(testFile(each))).find((each) => notices(each, on));
    const seconds = Math.round((performance.now() - startedAt) / 1000);
    print(`${caught === undefined ? "SURVIVED" : `caught by ${caught}`}, ${seconds} s: ${name}`);
    return { caught, seconds };
  } finally {
    for (const [file, text] of originals) writeFileSync(path.join(copy, file), text);
  }
}

/** The sources move on: what was to be replaced may not be there any more. */
function assertOnce(name, { file, find }, root) {
  const times = readFileSync(path.join(root, file), "utf8").split(find).length - 1;
  if (times !== 1) throw new Error(`${name}: what is to be replaced is ${times} times in ${file}.`);
}

function replaceOnce(name, change) {
  assertOnce(name, change, copy);
  const target = path.join(copy, change.file);
  writeFileSync(target, readFileSync(target, "utf8").split(change.find).join(change.replace));
}

/** Only what runs: a fault may well be one that the compiler would notice. */
function build() {
  const options = ["--declaration", "false", "--isolatedDeclarations", "false", "--noUnusedLocals", "false"];
  const tsc = path.join(ROOT, "node_modules", "typescript", "bin", "tsc");
  rmSync(path.join(copy, "dist"), { recursive: true, force: true });
  spawnSync(process.execPath, [tsc, "-p", "tsconfig.build.json", ...options], { cwd: copy, stdio: "ignore" });
  if (!existsSync(path.join(copy, "dist", "index.js"))) throw new Error("nothing was built");
}

function testFile(by) {
  return path.join(copy, "test", by.endsWith(".test.ts") ? by : path.join("reliability", `${by}.test.ts`));
}

function notices(by, on) {
  const config = on === "postgres" ? "vitest.postgres.config.ts" : configFor(by);
  const vitest = path.join(ROOT, "node_modules", "vitest", "vitest.mjs");
  const args = [vitest, "run", "--root", copy, "--config", path.join(copy, config), testFile(by)];
  const sizes = ROUNDS[by] === undefined ? {} : { RELIABILITY_SEED: "1", RELIABILITY_ROUNDS: ROUNDS[by] };
  const { status } = spawnSync(process.execPath, args, {
    cwd: copy,
    env: { ...process.env, ...sizes },
    stdio: "ignore",
    timeout: LONGEST_MS,
  });
  // One that hangs has noticed something, too.
  return status !== 0;
}

function configFor(by) {
  return by.endsWith(".test.ts") ? "vitest.config.ts" : "vitest.reliability.config.ts";
}

function print(text) {
  process.stdout.write(`${text}\n`);
}
