import { existsSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import { until } from "../support/until.ts";
import { Layer } from "./support/size.ts";
import { newStage } from "./support/stage.ts";
import { assertValid, historyOf, type Scene, unexplained, workOffAndCheck } from "./support/work-off.ts";

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

/** Whether some process has seen the clock be wrong by so many seconds. */
function isSeen(scene: Scene, seconds: number): boolean {
  const right = Date.now() - Number(process.hrtime.bigint()) / 1e6;
  return historyOf(scene).some(({ wall, mono }) => Math.abs(wall - mono - right - seconds * 1000) < 500);
}

async function round(seed: number, layer: Layer): Promise<void> {
  const random = new Random(seed);
  const scene = { ...newStage(), queues: QUEUES, setClocks: true };
  const clock = new Clock(scene.directory);
  const input = { ...scene, seed, deletes: false, limit: 40 };
  const start = (number: number): Program =>
    new Program("../reliability/programs/load.mjs", { ...input, number }, { env: clock.env });
  const crowd = [1, 2, 3].map(start);
  await Promise.all(crowd.map((program) => program.hears("running")));
  layer.planned(JUMPS);
  for (let jump = 0; jump < JUMPS; jump++) {
    await sleep(random.between(100, 800)); // at any moment
    const seconds = random.pick(OFFSETS);
    clock.set(seconds);
    await until(() => isSeen(scene, seconds));
    layer.delivered();
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
  const { history, counts, ...findings } = await workOffAndCheck(scene, 30);
  for (const [what, n] of Object.entries(counts)) layer.count(what, n);
  assertValid({ counts, ...findings });
  expect(unexplained(history, ({ f }) => f === "claim" || f === "put")).toEqual([]);
  rmSync(scene.directory, { recursive: true });
}

test("however often the clock is set, nothing is lost, nothing is done by two at once, and nothing is stuck", async () => {
  const layer = new Layer({ name: "environment.clock", rounds: 2 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(seed, layer));
  layer.done();
});
