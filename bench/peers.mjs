// localqueue beside its peers: npm run bench:peers [-- [--quick] [--peers a,b] [--json FILE] [workload…]]
// On PostgreSQL, beside those that are at home there: npm run bench:postgres [-- the same]
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { describeMachine } from "./cost/support/machine.mjs";
import { fields } from "./peers/adapters/all.mjs";
import { Servers } from "./peers/services/servers.mjs";
import { compare } from "./peers/support/compare.mjs";
import { durabilityOf } from "./peers/support/fsyncs.mjs";
import { installPeers, missing, versionOf } from "./peers/support/install.mjs";
import { line } from "./peers/support/lines.mjs";
import { sidesOf } from "./peers/support/sides.mjs";
import { workloads } from "./peers/workloads/all.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    field: { type: "string", default: "machine" },
    quick: { type: "boolean" },
    peers: { type: "string" },
    json: { type: "string" },
  },
});
const RESULTS = fileURLToPath(new URL(`peers/${options.field}.json`, import.meta.url));
const sides = sidesOf(fields[options.field]);
const asked = options.peers?.split(",");
const names = new Set(sides.map(({ adapter }) => adapter.name));
const unknown = [
  ...positionals.filter((name) => !workloads.some((workload) => workload.name === name)),
  ...(asked ?? []).filter((name) => !names.has(name)),
];
if (unknown.length > 0) {
  console.error(
    `There is no ${unknown.join(", ")}. The workloads are ${workloads.map(({ name }) => name).join(", ")};`,
  );
  console.error(`the peers are ${[...names].join(", ")}.`);
  process.exit(2);
}
const chosen = workloads.filter(({ name }) => positionals.length === 0 || positionals.includes(name));

const directory = fs.mkdtempSync(path.join(os.tmpdir(), "localqueue-peers-"));
// Servers that run as another user need to come through.
fs.chmodSync(directory, 0o711);
process.env.TMPDIR = directory;
const servers = new Servers();
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
process.once("exit", () => fs.rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));

/** What is under way, where somebody looks. */
function status(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${text}`);
}

function say(text) {
  status("");
  console.log(text);
}

/** Those that can be started, and what is known of each. */
async function meetPeers() {
  const problems = installPeers();
  const taking = [];
  const peers = {};
  for (const side of sides) {
    // Ours is what the others are compared with.
    if (asked !== undefined && side.adapter !== sides[0].adapter && !asked.includes(side.adapter.name)) continue;
    const { title, settings } = side.adapter;
    status(`${side.key} …`);
    let known = { title: side.mode.name === undefined ? title : `${title}, ${side.mode.name}`, settings };
    try {
      const reason = missing(side, problems);
      if (reason !== undefined) throw new Error(reason);
      known = { ...known, version: versionOf(side), ...(await durabilityOf(side, servers)) };
      taking.push(side);
    } catch (error) {
      known.reason = error.message;
    }
    peers[side.key] = known;
    const { version, durability = "–", fsyncs = "?", reason } = known;
    say(`  ${side.key}: ${reason ?? `${version}; ${durability}; ${fsyncs} flushes in 1,000 puts`}`);
  }
  await servers.stop();
  return { taking, peers };
}

/** A run of some workloads leaves the others in the file as they were. */
function write(file, results) {
  const before = positionals.length > 0 && fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, "utf8")) : {};
  const merged = { ...before, ...results, workloads: { ...before.workloads, ...results.workloads } };
  fs.writeFileSync(file, `${JSON.stringify(merged, undefined, 1)}\n`);
}

const machine = describeMachine(directory);
say(`${machine}.`);
if (options.quick) say("Quick: tiny sizes, which show that it works and say nothing about speed.");
say("\nPeers");
const { taking, peers } = await meetPeers();
const results = { machine, quick: options.quick === true, peers, workloads: {} };
const file = options.json ?? (options.quick ? undefined : RESULTS);
for (const workload of chosen) {
  const startedAt = Date.now();
  say(`\n${workload.name}: ${workload.title}`);
  const those = taking.filter(({ fsync }) => workload.fsync || !fsync);
  const found = await compare(workload, those, servers, status);
  await servers.stop();
  const { title, unit } = workload;
  results.workloads[workload.name] = { title, unit, sides: found };
  for (const result of found) say(`  ${line(workload, result)}`);
  say(`  (${Math.round((Date.now() - startedAt) / 1000)} s)`);
  if (file !== undefined) write(file, results);
}
process.exit();
