// Tests the built package on other runtimes than the one at hand: npm run test:runtimes [-- node26 bun …]
// Their binaries come from the npm registry, in pinned versions, and stay in .runtimes/.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { fetchRuntime } from "./runtimes/fetch.mjs";
import { RUNTIMES } from "./runtimes/runtimes.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const LONGEST_MS = 20 * 60_000;
/** How much of the proof of the guarantees is enough where the runtime is the only difference. */
const PART_OF_PROOF = "0.2";

const names = process.argv.slice(2);
const unknown = names.filter((name) => RUNTIMES[name] === undefined);
if (unknown.length > 0) {
  process.stderr.write(`There is no ${unknown.join(", ")} here, only ${Object.keys(RUNTIMES).join(", ")}.\n`);
  process.exit(2);
}

const rows = [];
for (const name of names.length > 0 ? names : Object.keys(RUNTIMES)) {
  const started = performance.now();
  const result = await testOn(name, RUNTIMES[name]);
  rows.push({ runtime: name, ...result, seconds: Math.round((performance.now() - started) / 1000) });
}
report(rows);

async function testOn(name, runtime) {
  const row = { version: runtime.version, sqlite: "-", driver: "-", passed: 0, failed: 0, skipped: 0 };
  try {
    const folder = path.join(ROOT, ".runtimes", name);
    mkdirSync(folder, { recursive: true });
    const binary = fetchRuntime(folder, runtime);
    // First on the path, so that whatever the tests start by name is the same.
    const env = {
      RELIABILITY_PART: PART_OF_PROOF,
      ...process.env,
      PATH: `${path.dirname(binary)}${path.delimiter}${process.env.PATH}`,
    };
    const which = execFileSync(binary, [...runtime.run, "scripts/runtimes/which.mjs"], { cwd: ROOT, env });
    Object.assign(row, JSON.parse(which));
    print(`${name}: ${row.version}, SQLite ${row.sqlite} (${row.driver})`);
    for (const program of runtime.tests) {
      const counts = await runTests([binary, ...runtime.run, ...program], env, path.join(folder, "result"));
      for (const what of Object.keys(counts)) row[what] += counts[what];
    }
  } catch (error) {
    print(`${name} FAILED: ${error.message}`);
    row.failed++;
  }
  return row;
}

/** Runs the tests quietly, but for the figures of the proof; shows all that they printed if something is wrong. */
async function runTests([command, ...args], env, resultFile) {
  rmSync(resultFile, { force: true });
  const child = spawn(command, args, {
    cwd: ROOT,
    env: { ...env, CLOSING_LINE_FILE: resultFile },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: LONGEST_MS,
    killSignal: "SIGKILL",
  });
  const printed = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => printed.push(data));
  const [code, signal] = await once(child, "close");
  const line = existsSync(resultFile) ? readFileSync(resultFile, "utf8") : "";
  const count = (what) => Number(line.match(new RegExp(`(\\d+) ${what}`))?.[1] ?? 0);
  const counts = { passed: count("passed"), failed: count("failed"), skipped: count("skipped") };
  // Whatever ends badly, or tells of no tests, has failed.
  if (counts.failed === 0 && (code !== 0 || counts.passed === 0)) counts.failed = 1;
  if (counts.failed > 0) {
    print(Buffer.concat(printed).toString());
    print(`${args.join(" ")} ended with ${signal ?? `exit code ${code}`}.`);
  } else {
    for (const [figures] of Buffer.concat(printed)
      .toString()
      .matchAll(/^reliability .*\{.*\}$/gm))
      print(figures);
  }
  return counts;
}

function report(results) {
  const columns = ["runtime", "version", "SQLite", "driver", "passed", "failed", "skipped", "seconds"];
  const lines = [columns, ...results.map((row) => columns.map((column) => String(row[column.toLowerCase()])))];
  const widths = columns.map((_, i) => Math.max(...lines.map((line) => line[i].length)));
  for (const line of lines) {
    const cells = line.map((cell, i) => cell.padEnd(widths[i]));
    print(cells.join("  ").trimEnd());
  }
  const sum = (what) => results.reduce((total, row) => total + row[what], 0);
  process.exitCode = sum("failed") === 0 ? 0 : 1;
  const line = `${sum("passed")} passed, ${sum("failed")} failed`;
  print(line);
  const file = process.env.CLOSING_LINE_FILE;
  if (file) writeFileSync(file, `${line}\n`);
}

function print(text) {
  process.stdout.write(`${text}\n`);
}
