// What localqueue costs beside the limit of SQLite itself: npm run bench [-- [--quick] [section…]]
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { describeMachine } from "./cost/support/machine.mjs";

const SECTIONS = [
  "puts",
  "worker",
  "bus",
  "parts",
  "backlog",
  "limited",
  "purge",
  "reports",
  "latency",
  "idle",
  "event-loop",
  "large",
  "flood",
];
/** These need the Python package, and are run only when they are named. */
const WITH_PYTHON = ["python-open", "python-beside", "python-latency"];
const ALL = [...SECTIONS, ...WITH_PYTHON];

const isOption = (arg) => arg.startsWith("-");
const args = process.argv.slice(2);
const options = args.filter(isOption);
const names = args.filter((arg) => !isOption(arg));
const unknown = [...options.filter((option) => option !== "--quick"), ...names.filter((it) => !ALL.includes(it))];
if (unknown.length > 0) {
  console.error(`There is no ${unknown.join(", ")}. Usage: node bench/cost.mjs [--quick] [section…]`);
  console.error(`The sections are ${SECTIONS.join(", ")}; without any, all of these are run.`);
  console.error(`${WITH_PYTHON.join(", ")} need the Python package, and are run only when they are named.`);
  process.exit(2);
}

let running;
let interrupted = false;
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => {
    interrupted = true;
    running?.kill(signal);
  });
}

/** A section runs in a process of its own, since the heap that it leaves behind would slow the next. */
async function runSection(name, directory) {
  const file = fileURLToPath(new URL(`cost/${name}.mjs`, import.meta.url));
  const env = { ...process.env, TMPDIR: directory, TEMP: directory };
  running = spawn(process.execPath, [file, ...options], { stdio: ["ignore", "pipe", "inherit"], env });
  const ended = once(running, "close");
  const figures = [];
  for await (const line of createInterface({ input: running.stdout })) {
    const figure = { section: name, ...JSON.parse(line) };
    figures.push(figure);
    console.log(`  ${sentence(figure)}`);
  }
  const [code, signal] = await ended;
  running = undefined;
  if (code !== 0) console.error(`  The section ${name} failed (${signal ?? `exit code ${code}`}).`);
  return { figures, failed: code !== 0 };
}

const verdict = ({ ok }) => (ok === undefined ? "–" : ok ? "ok" : "short");

function sentence(figure) {
  const { what, asked, reached, detail } = figure;
  const wish = asked === undefined ? "" : ` (asked: ${asked}, ${verdict(figure)})`;
  return `${what}: ${reached}${wish}; ${detail}.`;
}

function table(figures) {
  const rows = figures.map((figure) => {
    const { section, what, asked = "–", reached, detail } = figure;
    return [section, what, asked, reached, verdict(figure), detail];
  });
  const lines = [["section", "figure", "asked", "reached", "", "in figures"], Array(6).fill("---"), ...rows];
  return lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function conclusion() {
  if (interrupted) return "Interrupted: the table is not complete.";
  if (failures > 0) return `${failures} of the sections failed: the table is not complete.`;
  const short = figures.filter(({ ok }) => ok === false).length;
  return short === 0 ? "All that was asked for is reached." : `${short} of the figures fall short of what was asked.`;
}

const directory = fs.mkdtempSync(path.join(os.tmpdir(), "localqueue-cost-"));
const figures = [];
let failures = 0;
try {
  const machine = describeMachine(directory);
  console.log(`${machine}.`);
  if (options.includes("--quick"))
    console.log("Quick: tiny sizes, which show that it works and say nothing about speed.");
  for (const name of ALL) {
    if (interrupted) break;
    if (names.length > 0 ? !names.includes(name) : WITH_PYTHON.includes(name)) continue;
    console.log(`\n${name}`);
    const result = await runSection(name, directory);
    figures.push(...result.figures);
    if (result.failed) failures++;
  }
  console.log(`\n${machine}:\n\n${table(figures)}\n`);
  console.log(conclusion());
} finally {
  // Programs of a section that was interrupted may still be closing their files.
  fs.rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
}
if (failures > 0 || interrupted) process.exitCode = 1;
