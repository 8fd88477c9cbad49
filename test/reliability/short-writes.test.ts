import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import { until } from "../support/until.ts";
import { Layer } from "./support/size.ts";
import { newStage, type Stage } from "./support/stage.ts";
import { assertValid, historyOf, unexplained, workOffAndCheck } from "./support/work-off.ts";

const FAULTS = 6;
/** Below that there is room for everything else that a process writes: the shared memory, its history. */
const LEAST_BYTES = 128 * 1024;
const PAGE_BYTES = 4096;
const PUTS = 20;
/** What is to be written when the file may grow no more, and whether the process is killed before it may again. */
const TARGETS = { log: 3, database: 1 };

/**
 * A process whose files may not grow beyond a limit, as `ulimit -f` sets it: the write that crosses it is done as far as
 * it goes, and the next one fails. System calls are watched to know that this happened.
 */
class Limited {
  readonly #program: Program;
  readonly #trace: string;
  #pid = 0;

  constructor(directory: string, input: object) {
    this.#trace = path.join(directory, `trace-${performance.now()}`);
    const through = ["strace", "-f", "-o", this.#trace, "-e", "trace=pwrite64"];
    this.#program = new Program("../reliability/programs/short-writes.mjs", input, { through });
  }

  async start(): Promise<void> {
    const { pid } = await this.#program.hears("running");
    this.#pid = pid as number;
  }

  /** `undefined` = as far as the disk goes. */
  limitFiles(bytes: number | undefined): void {
    execFileSync("prlimit", ["--pid", String(this.#pid), `--fsize=${bytes ?? "unlimited"}:unlimited`]);
  }

  /** Whether it was done, and not refused. */
  async do(verb: string, argument?: number): Promise<boolean> {
    this.#program.tell({ verb, argument });
    return (await this.#program.hears("did", 60_000))["well"] === true;
  }

  /** Writes of which only a part was done, so far. */
  get shortWrites(): number {
    const calls = readFileSync(this.#trace, "utf8").matchAll(/, (\d+), \d+\) += (\d+)$/gm);
    return [...calls].filter(([, wanted, done]) => Number(done) < Number(wanted)).length;
  }

  async kill(): Promise<void> {
    process.kill(this.#pid, "SIGKILL");
    await this.#program.exited;
  }

  async end(): Promise<void> {
    await this.#program.end(60_000);
  }
}

interface Scene extends Stage {
  readonly random: Random;
  readonly layer: Layer;
}

function sizeOf(location: string, end: string): number {
  return statSync(path.join(location, `localqueue.db${end}`), { throwIfNoEntry: false })?.size ?? 0;
}

/** Lets a write be cut off, and asks for more; the process is told to go on. */
async function strike(process: Limited, target: keyof typeof TARGETS, { location, random }: Scene): Promise<void> {
  if (target === "database") await process.do("put", LEAST_BYTES + random.below(200_000));
  const before = process.shortWrites;
  const size = sizeOf(location, target === "log" ? "-wal" : "");
  const limit = Math.max(size, LEAST_BYTES) + random.between(1, 3 * PAGE_BYTES);
  process.limitFiles(limit);
  // The log is moved into the database when the last one closes it.
  if (target === "database") await process.do("reopen");
  else await process.do("put", limit - size + 5 * PAGE_BYTES);
  // A log that began anew has still some way to go.
  for (let n = 0; n < PUTS && process.shortWrites === before; n++) await process.do("put", LEAST_BYTES / 2);
  await process.do("put", 10);
  await process.do("claim", 2);
  await process.do("ack");
}

async function round(seed: number, layer: Layer): Promise<void> {
  const random = new Random(seed);
  const scene = { ...newStage(), random, layer };
  const input = { location: scene.location, histories: scene.histories, fsync: random.chance(0.5) };
  // Somebody else who keeps it open, so that the log stays when a connection is opened anew.
  await using neighbour = new SimpleQueue(scene.location);
  const isAlone = random.chance(0.5);
  if (isAlone) await neighbour.close();
  else await neighbour.stats();
  let process = new Limited(scene.directory, input);
  await process.start();
  await process.do("put", LEAST_BYTES);
  for (let faults = 0; faults < FAULTS; faults++) {
    const target = isAlone ? random.weighted(TARGETS) : "log";
    const before = process.shortWrites;
    layer.planned();
    await strike(process, target, scene);
    if (process.shortWrites > before) {
      layer.delivered();
      layer.count(`of the ${target}`);
    }
    if (random.chance(0.3)) {
      await process.kill();
      layer.count("killed then");
      process = new Limited(scene.directory, input);
      await process.start();
    } else process.limitFiles(undefined);
    await until(() => process.do("put", random.between(10, 20_000)));
  }
  await process.end();
  await neighbour.close();
  const { history, counts, ...findings } = await workOffAndCheck({ ...scene, queues: ["jobs"] });
  assertValid({ counts, ...findings });
  const refused = unexplained(history, () => false);
  layer.count("refused", refused.length);
  expect(refused.filter((call) => !call.endsWith(" IO"))).toEqual([]);
  layer.count("calls", historyOf(scene).filter(({ type }) => type === "invoke").length);
  rmSync(scene.directory, { recursive: true });
}

test("a write of which only a part is done loses nothing that was confirmed, and leaves nothing that was refused", async () => {
  const layer = new Layer({ name: "short-writes", rounds: 4 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(seed, layer));
  layer.done();
});
