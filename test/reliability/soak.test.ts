import { statSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { faultsOf, select } from "../support/inspect.ts";
import { type Message, Program } from "../support/program.ts";
import { tempDirectory } from "../support/temp.ts";
import { until } from "../support/until.ts";
import { Layer } from "./support/size.ts";

const PROCESSES = 2;
const CI_SECONDS = 60;
const EVERY_MS = 1_000;
const MIN_SAMPLES = 15;
/** In less time everything grows. */
const LEAST_MS = 30_000;
const DEADLINE_MS = 60_000;
const MIB = 1024 * 1024;

/** What a service may take, however long it runs, and by how much that may grow once it is warm. */
const BOUNDS = {
  heap: { growth: MIB },
  rss: { growth: 24 * MIB },
  descriptors: { growth: 2, most: 64 },
  resources: { growth: 4 },
  // Beyond 64 MiB it is cut off. It never shrinks before, so how much it grew says nothing.
  log: { growth: Number.POSITIVE_INFINITY, most: 1.1 * 64 * MIB },
  database: { growth: 8 * MIB, most: 64 * MIB },
} as const;

type Measure = keyof typeof BOUNDS;

interface Sample extends Message {
  readonly put: number;
  readonly done: number;
  readonly doubled: number;
  readonly faults: readonly string[];
  readonly delayMs: number;
}

function unfinished(location: string): number {
  return select(location, "SELECT count(*) AS jobs FROM messages WHERE status < 2")[0]?.["jobs"] as number;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;
}

/** From the second third of the time to the last: at first everything grows. */
function growthOf(values: readonly number[]): number {
  const third = Math.floor(values.length / 3);
  return median(values.slice(-third)) - median(values.slice(third, 2 * third));
}

function excesses(measure: Measure, values: readonly number[]): string[] {
  const { growth, most = Number.POSITIVE_INFINITY } = { most: undefined, ...BOUNDS[measure] };
  const [grown, largest] = [growthOf(values), Math.max(...values)];
  return [
    ...(grown > growth ? [`${measure} grew by ${grown}`] : []),
    ...(largest > most ? [`${measure} reached ${largest}`] : []),
  ];
}

/** Layer J: what grows, if only for a little with each job, shows in the end. */
test("processes that work for a long time take no more and more memory, descriptors or disk", async () => {
  const layer = new Layer({ name: "soak", rounds: 1, seconds: CI_SECONDS });
  const [seed] = layer.seeds();
  const location = tempDirectory();
  const programs = Array.from({ length: PROCESSES }, (_, i) => {
    const input = { location, seed: (seed ?? 0) + i, everyMs: EVERY_MS };
    return new Program("../reliability/programs/soak.mjs", input);
  });
  await Promise.all(programs.map((program) => program.hears("running")));

  const exits: unknown[] = [];
  for (const program of programs) void program.exited.then((exit) => exits.push(exit));
  const files: Record<"log" | "database", number[]> = { log: [], database: [] };
  const endsAt = performance.now() + Math.max(layer.leftMs, LEAST_MS);
  while (performance.now() < endsAt) {
    await sleep(EVERY_MS);
    expect(exits).toEqual([]);
    files.database.push(statSync(path.join(location, "localqueue.db")).size);
    files.log.push(statSync(path.join(location, "localqueue.db-wal")).size);
  }
  // First nobody puts any more, then everything is worked off.
  for (const program of programs) program.tell("end");
  await Promise.all(programs.map((program) => program.hears("finished putting", DEADLINE_MS)));
  await until(() => unfinished(location) === 0, DEADLINE_MS);
  for (const program of programs) program.tell("stop");
  await Promise.all(programs.map((program) => program.end(DEADLINE_MS)));

  const excess = programs.flatMap((program, i) => {
    const samples = program.said("takes") as Sample[];
    if (samples.length < MIN_SAMPLES) throw new Error(`soak: unknown, because of only ${samples.length} samples`);
    return (["heap", "rss", "descriptors", "resources"] as const).flatMap((measure) => {
      const values = samples.map((sample) => sample[measure] as number);
      layer.count(`${measure} growth ${i}`, growthOf(values));
      return excesses(measure, values).map((text) => `process ${i}: ${text}`);
    });
  });
  for (const measure of ["log", "database"] as const) {
    layer.count(`${measure} growth`, growthOf(files[measure]));
    layer.count(`${measure} most`, Math.max(...files[measure]));
    excess.push(...excesses(measure, files[measure]));
  }
  const ended = programs.map((program) => program.said("ended")[0] as Sample);
  const sum = (what: "put" | "done" | "doubled"): number => ended.reduce((total, each) => total + each[what], 0);
  for (const what of ["put", "done"] as const) layer.count(what, sum(what));
  layer.done();
  expect(exits).toEqual(programs.map(() => ({ code: 0, signal: null, stderr: "" })));
  expect(ended.flatMap(({ faults }) => faults)).toEqual([]);
  expect(excess).toEqual([]);
  expect(sum("doubled")).toBe(0);
  expect(sum("done")).toBe(sum("put"));
  expect(faultsOf(location)).toEqual([]);
});
