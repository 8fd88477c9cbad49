import { rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import { Layer } from "./support/size.ts";
import { newStage } from "./support/stage.ts";
import { assertValid, unexplained, workOffAndCheck } from "./support/work-off.ts";

const SECONDS = 2;
const EVERY_MS = 50;

interface Look {
  readonly look: string;
  /** By the process that puts jobs, too. */
  readonly inProcess: boolean;
  /** Takes the locks away that keep writers apart. */
  readonly takesLocks?: boolean;
  /** Takes away the one that keeps the files where they are. */
  readonly freesFiles?: boolean;
}

const LOOKS: readonly Look[] = [
  { look: "asks what there is", inProcess: true },
  { look: "copies everything", inProcess: false },
  { look: "reads the log", inProcess: true },
  { look: "reads the database", inProcess: true, freesFiles: true },
  { look: "reads the shared memory", inProcess: true, takesLocks: true },
  { look: "copies everything", inProcess: true, takesLocks: true, freesFiles: true },
];

async function round(seed: number, layer: Layer, { look, inProcess, takesLocks, freesFiles }: Look): Promise<void> {
  const random = new Random(seed);
  const scene = newStage();
  const start = (more: object): Program =>
    new Program("../reliability/programs/file-reads.mjs", { ...scene, seed: random.below(1e6), puts: true, ...more });
  const looker = start({ look, everyMs: EVERY_MS, puts: inProcess });
  await looker.hears("running");
  const crowd = [looker, start({}), start({ reopens: true })];
  await Promise.all(crowd.slice(1).map((program) => program.hears("running")));
  layer.planned();
  for (const program of crowd) program.tell("look");
  await sleep(SECONDS * 1000);
  await Promise.all(crowd.map((program) => program.end(60_000)));
  const { warnings, looks } = await looker.hears("ended");
  layer.count("looks", looks as number);
  if (Number(looks) > 0) layer.delivered();
  const { history, ...findings } = await workOffAndCheck({ ...scene, queues: ["jobs"] });
  const hit = unexplained(history, () => false);
  if (takesLocks) {
    // It is noticed. Transactions that were under way until then may have met those of somebody else: what they
    // committed may be lost, and the file damaged.
    expect(warnings).toContain("LOCALQUEUE_LOCKS_LOST");
    layer.count("calls that were hit", hit.length);
    if (hit.some((call) => call.endsWith("CORRUPT"))) layer.count("files that were damaged");
    layer.count("commits that were lost", findings.violations.length);
  } else {
    expect(warnings).toEqual([]);
    assertValid(findings);
  }
  const codes = [...(takesLocks ? ["IO", "CORRUPT"] : []), ...(freesFiles ? ["FILE_REPLACED"] : [])];
  expect(hit.filter((call) => !codes.some((code) => call.endsWith(code)))).toEqual([]);
  rmSync(scene.directory, { recursive: true });
}

test("a program that looks at the files of its queue does no harm, or is warned of it and has new locks", async () => {
  const layer = new Layer({ name: "file-reads", rounds: 1 });
  for (const seed of layer.seeds()) {
    for (const look of LOOKS) {
      await layer.round(seed, async () => {
        await round(seed, layer, look).catch((error: unknown) => {
          const where = `${look.look}${look.inProcess ? "" : " in another process"}`;
          throw new Error(`${where}: ${error instanceof Error ? error.message : error}`, { cause: error });
        });
      });
    }
  }
  layer.done();
});
