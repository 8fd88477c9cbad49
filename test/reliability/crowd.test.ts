import { mkdirSync, rmSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import { tempDirectory } from "../support/temp.ts";
import type { Call, Entry } from "./support/history.ts";
import { Layer } from "./support/size.ts";
import { assertValid, historyOf, unexplained, workOffAndCheck } from "./support/work-off.ts";

const PROCESSES = 64;
const KILLS = 8;
const LEASE_MS = 3_000;
const QUEUES = ["jobs"];
/** How long all of them together may take, which two processors need for that many Nodes alone. */
const PATIENCE_MS = 120_000;
/** Beyond reason: somebody was forgotten, or starved. */
const LONGEST_CALL_MS = 20_000;

/** How long each call took, in milliseconds. */
function durations(history: readonly Entry[]): { readonly f: Call["f"]; readonly ms: number }[] {
  const asked = new Map<string, { call: Call; mono: number }>();
  const found: { f: Call["f"]; ms: number }[] = [];
  for (const entry of history) {
    if (entry.type === "invoke") asked.set(`${entry.process} ${entry.seq}`, entry);
    else {
      const { call, mono } = asked.get(`${entry.process} ${entry.of}`) as { call: Call; mono: number };
      found.push({ f: call.f, ms: entry.mono - mono });
    }
  }
  return found;
}

async function round(seed: number, layer: Layer): Promise<void> {
  const random = new Random(seed);
  const directory = tempDirectory();
  const scene = { location: path.join(directory, "queue"), histories: path.join(directory, "histories") };
  mkdirSync(scene.histories);
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
  const took = durations(historyOf(scene));
  const { history, counts, ...findings } = await workOffAndCheck({ ...scene, queues: QUEUES });
  for (const [what, n] of Object.entries(counts)) layer.count(what, n);
  assertValid({ counts, ...findings });
  expect(unexplained(history, ({ f }) => f === "claim")).toEqual([]);
  const longest = Math.max(...took.map(({ ms }) => ms));
  layer.count("slowest call ms", Math.round(longest));
  expect(longest).toBeLessThan(LONGEST_CALL_MS);
  rmSync(directory, { recursive: true });
}

test("many more processes than processors share a file: each gets its turn, and each job is done once, though some die", async () => {
  const layer = new Layer({ name: "crowd", rounds: 1 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(seed, layer));
  layer.done();
});
