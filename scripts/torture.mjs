// A campaign of the proof: npm run torture -- --minutes 60 [--seed 1] [model kills …]
// Each layer has its share of the time. The report is in .torture/, and says how to repeat what failed.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import { install, layersToRun, missing, print, ROOT } from "./reliability/layers.mjs";

/** Enough for a round. */
const LEAST_MINUTES = 0.05;

const { values, positionals } = parseArgs({
  options: { minutes: { type: "string" }, seed: { type: "string" } },
  allowPositionals: true,
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) {
  print("How long? For an hour: npm run torture -- --minutes 60");
  process.exit(2);
}
const seed = Number(values.seed ?? Math.floor(Math.random() * 0x7fff_ffff));
// The oracle itself has no sizes.
const layers = layersToRun(positionals).filter((layer) => !layer.startsWith("checker"));
install(layers);

const startedAt = new Date();
const folder = path.join(ROOT, ".torture", startedAt.toISOString().replace(/[:.]/g, "-"));
mkdirSync(folder, { recursive: true });
const results = [];
for (const layer of layers) {
  // What a layer leaves over, because it has only so much to do, is for the others.
  const left = minutes - (Date.now() - startedAt.getTime()) / 60_000;
  results.push(torture(layer, Math.max(left / (layers.length - results.length), LEAST_MINUTES)));
  print(`${layer}: ${results.at(-1).verdict}`);
}
const passed = results.filter(({ verdict }) => verdict === "valid").length;
const report = {
  startedAt: startedAt.toISOString(),
  minutes: Math.round((Date.now() - startedAt.getTime()) / 6000) / 10,
  seed,
  machine: `${os.cpus().length} x ${os.cpus()[0]?.model ?? "unknown"}, ${os.type()} ${os.release()}`,
  node: process.version,
  sqlite: `${loadDriver().sqliteVersion} (${loadDriver().name})`,
  commit: spawnSync("git", ["describe", "--always", "--dirty"], { cwd: ROOT, encoding: "utf8" }).stdout?.trim(),
  results,
};
writeFileSync(path.join(folder, "report.json"), `${JSON.stringify(report, null, 2)}\n`);
writeFileSync(path.join(folder, "report.md"), markdown(report));
print(markdown(report));
print(`${passed} of ${results.length} layers are valid. The report is in ${path.relative(ROOT, folder)}.`);
process.exitCode = passed === results.length && passed > 0 ? 0 : 1;

/** What a layer counted in its share of the time; `invalid` or `unknown` if it failed. */
function torture(layer, share) {
  const lacking = missing(layer);
  if (lacking.length > 0) return { layer, verdict: "unknown", reason: `there is no ${lacking.join(", no ")} here` };
  print(`${layer}: ${share.toFixed(1)} minutes`);
  const counts = path.join(folder, `${layer}.jsonl`);
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [
      "node_modules/vitest/vitest.mjs",
      "run",
      "--config",
      "vitest.reliability.config.ts",
      `test/reliability/${layer}.test.ts`,
    ],
    {
      cwd: ROOT,
      encoding: "utf8",
      maxBuffer: 1024 ** 3,
      env: {
        ...process.env,
        NO_COLOR: "1",
        RELIABILITY_MINUTES: String(share),
        RELIABILITY_SEED: String(seed),
        RELIABILITY_REPORT: counts,
      },
    },
  );
  const said = stdout + stderr;
  writeFileSync(path.join(folder, `${layer}.log`), said);
  const lines = existsSync(counts) ? readFileSync(counts, "utf8").trim().split("\n") : [];
  const figures = lines.map((line) => JSON.parse(line));
  if (status === 0 && figures.length > 0) return { layer, verdict: "valid", figures };
  const reason = said.match(/To repeat it: .*/)?.[0] ?? said.match(/unknown, because .*/)?.[0] ?? "see its log";
  return { layer, verdict: reason.startsWith("unknown") ? "unknown" : "invalid", reason, figures };
}

function markdown({ startedAt: at, minutes: took, seed: first, machine, node, sqlite, commit, results: all }) {
  const rows = all.map(({ layer, verdict, reason, figures = [] }) => {
    const texts = figures.map(({ layer: _, ...rest }) =>
      Object.entries(rest)
        .map(([what, n]) => `${what} ${n}`)
        .join(", "),
    );
    return `| ${layer} | ${verdict} | ${[reason, ...texts].filter(Boolean).join("; ")} |`;
  });
  return [
    `# Campaign of ${at}`,
    "",
    `${took} minutes, first seed ${first}, on ${machine}, Node ${node}, SQLite ${sqlite}, commit ${commit}.`,
    "",
    "| layer | verdict | |",
    "| --- | --- | --- |",
    ...rows,
    "",
  ].join("\n");
}
