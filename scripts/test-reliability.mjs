// Runs the proof of the guarantees: npm run test:reliability [-- model kills …]
// Some layers need more than Node: as root on Debian what is missing is installed, otherwise the layer is skipped, and
// the run fails.
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { install, layersToRun, missing, print, ROOT } from "./reliability/layers.mjs";

const layers = layersToRun(process.argv.slice(2));
install(layers);
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
