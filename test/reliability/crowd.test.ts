import { rmSync } from "node:fs";
import { expect, test } from "vitest";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import type { Entry } from "./support/history.ts";
import { Layer } from "./support/size.ts";
import { newStage } from "./support/stage.ts";
import { assertValid, historyOf, unexplained, workOffAndCheck } from "./support/work-off.ts";

const PROCESSES = 64;
const KILLS = 8;
const LEASE_MS = 3_000;
const QUEUES = ["jobs"];
/** How long all of them together may take, which two processors need for that many Nodes alone. */
const PATIENCE_MS = 120_000;
/** Beyond reason: somebody was forgotten, or starved. The first call of a process starts its engine and opens the file. */
const LONGEST_MS = { first: 60_000, later: 10_000 };

/** How long the slowest first call of a process took, and the slowest of the later ones, in milliseconds. */
function slowest(history: readonly Entry[]): { first: number; later: number } {
  const asked = new Map(history.map((entry) => [`${entry.process} ${entry.seq}`, entry.mono]));
  const found = { first: 0, later: 0 };
  for (const entry of history) {
    if (entry.type === "invoke") continue;
    const ms = Math.round(entry.mono - (asked.get(`${entry.process} ${entry.of}`) as number));
    const which = entry.of === 1 ? "first" : "later";
    found[which] = Math.max(found[which], ms);
  }
  return found;
}

async function round(seed: number, layer: Layer): Promise<void> {
  const random = new Random(seed);
  const scene = newStage();
  const input = { ...scene, jobs: layer.isCampaign ? 20 : 5, leaseMs: LEASE_MS };
  const crowd = Array.from({ length: PROCESSES }, () => new Program("../reliability/programs/crowd.mjs", input));
  await Promise.all(crowd.map((program) => program.hears("started", PATIENCE_MS)));
  const startedAt = performance.now();
  for (const program of crowd) program.tell("begin");
  layer.planned(KILLS);
  const victims = crowd.splice(0, KILLS);
  const killing = victims.map(async (victim) => {
    const holds = random.below(3);
    for (let n = 0; n <= holds; n++) await victim.hears("holds", PATIENCE_MS);
    await victim.kill();
    const { signal, stderr } = await victim.exited;
    if (signal !== "SIGKILL" || stderr !== "") throw new Error(`A process ended before it was killed: ${stderr}`);
    layer.delivered();
  });
  await Promise.all([...killing, ...crowd.map((program) => program.hears("done", PATIENCE_MS))]);
  layer.count("ms for all", Math.round(performance.now() - startedAt));
  await Promise.all(crowd.map((program) => program.end(PATIENCE_MS)));
  const waited = slowest(historyOf(scene));
  const { history, counts, ...findings } = await workOffAndCheck({ ...scene, queues: QUEUES });
  for (const [what, n] of Object.entries(counts)) layer.count(what, n);
  assertValid({ counts, ...findings });
  expect(unexplained(history, ({ f }) => f === "claim")).toEqual([]);
  layer.count("slowest first call ms", waited.first);
  layer.count("slowest later call ms", waited.later);
  expect(waited.first).toBeLessThan(LONGEST_MS.first);
  expect(waited.later).toBeLessThan(LONGEST_MS.later);
  rmSync(scene.directory, { recursive: true });
}

test("many more processes than processors share a file: each gets its turn, and each job is done once, though some die", async () => {
  const layer = new Layer({ name: "crowd", rounds: 1 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(seed, layer));
  layer.done();
});
