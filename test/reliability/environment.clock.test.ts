import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { Program } from "../support/program.ts";
import { tempDirectory } from "../support/temp.ts";
import { Random } from "./programs/random.mjs";
import type { Entry } from "./support/history.ts";
import { Layer } from "./support/size.ts";
import { assertValid, unexplained, workOffAndCheck } from "./support/work-off.ts";

const LIBRARIES = ["x86_64", "aarch64"].map((arch) => `/usr/lib/${arch}-linux-gnu/faketime/libfaketime.so.1`);
const JUMPS = 8;
/** By how many seconds the clock may be wrong. */
const OFFSETS = [-86_400, -3_600, -60, -1, 0, 1, 60, 3_600, 86_400];
const QUEUES = ["orders", "mails", "bin", "few"];

/** Sets the clock of processes, as often as one likes, while they run; what measures intervals goes on undisturbed. */
class Clock {
  readonly env: Record<string, string>;
  readonly #file: string;

  constructor(directory: string) {
    this.#file = path.join(directory, "clock");
    this.env = {
      LD_PRELOAD: LIBRARIES.find(existsSync) ?? "",
      FAKETIME_TIMESTAMP_FILE: this.#file,
      FAKETIME_NO_CACHE: "1",
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
    };
    this.set(0);
  }

  set(seconds: number): void {
    writeFileSync(this.#file, seconds < 0 ? `${seconds}` : `+${seconds}`);
  }
}

/** By how many seconds the clock was seen to be wrong; the last process, which works off the rest, sees the right one. */
function offsetsSeen(history: readonly Entry[]): Set<number> {
  const differences = history.map(({ wall, mono }) => wall - mono);
  const right = differences.at(history.findIndex(({ process }) => process.startsWith("drain"))) ?? 0;
  return new Set(differences.map((difference) => Math.round((difference - right) / 1000)));
}

async function round(seed: number, layer: Layer): Promise<void> {
  const random = new Random(seed);
  const directory = tempDirectory();
  const scene = { location: path.join(directory, "queue"), histories: path.join(directory, "histories") };
  mkdirSync(scene.histories);
  const clock = new Clock(directory);
  const input = { ...scene, seed, deletes: false, limit: 40 };
  const start = (number: number): Program =>
    new Program("../reliability/programs/load.mjs", { ...input, number }, { env: clock.env });
  const crowd = [1, 2, 3].map(start);
  await Promise.all(crowd.map((program) => program.hears("running")));
  const jumps: number[] = [];
  layer.planned(JUMPS);
  for (let jump = 0; jump < JUMPS; jump++) {
    await sleep(random.between(100, 800)); // at any moment
    const offset = random.pick(OFFSETS);
    jumps.push(offset);
    clock.set(offset);
    if (random.below(3) > 0) continue;
    // Who dies leaves leases behind by whatever clock there was.
    await crowd.pop()?.kill();
    layer.count("kills");
    crowd.push(start(10 + jump));
    await crowd.at(-1)?.hears("running");
  }
  clock.set(random.pick(OFFSETS));
  for (const program of crowd) await program.end(60_000);
  // The clock is right again, and what was left behind is still worked off soon.
  const { history, counts, ...findings } = await workOffAndCheck({ ...scene, queues: QUEUES, setClocks: true }, 30);
  const seen = offsetsSeen(history);
  layer.delivered(jumps.filter((offset) => seen.has(offset)).length);
  for (const [what, n] of Object.entries(counts)) layer.count(what, n);
  assertValid({ counts, ...findings });
  expect(unexplained(history, ({ f }) => f === "claim" || f === "put")).toEqual([]);
  rmSync(directory, { recursive: true });
}

test("however often the clock is set, nothing is lost, nothing is done by two at once, and nothing is stuck", async () => {
  const layer = new Layer({ name: "environment.clock", rounds: 3 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(seed, layer));
  layer.done();
});
