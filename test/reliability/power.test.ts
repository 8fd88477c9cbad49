import { readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf } from "../support/inspect.ts";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import { describeSmallDisks, SmallDisk } from "../support/small-disk.ts";
import { tempDirectory } from "../support/temp.ts";
import { nameOf } from "./programs/recorded-queue.mjs";
import { checkCut } from "./support/check-cut.ts";
import { finalRows } from "./support/drain.ts";
import { type Entry, readHistory } from "./support/history.ts";
import { LOG_HEADER_BYTES } from "./support/log-file.ts";
import { Layer } from "./support/size.ts";

const MIB = 96;
/** From so many cuts on without a flush, some must have lost something: otherwise they cut nothing. */
const TELLING_CUTS = 3;

/** What two processes ask for: a flush of each commit, or none. */
const KINDS = {
  flushed: [true, true],
  mixed: [true, false],
  relaxed: [false, false],
} as const;

type Kind = keyof typeof KINDS;

function kindOf(seed: number): Kind {
  return (["relaxed", "flushed", "mixed"] as const)[seed % 3] as Kind;
}

/** Whether the write-ahead log was moved into the database, and overwritten since. */
function hasBegunAnew(location: string): boolean {
  const log = readFileSync(path.join(location, "localqueue.db-wal"));
  return log.length >= LOG_HEADER_BYTES && log.readUInt32BE(12) > 0;
}

interface Circumstances {
  readonly kind: Kind;
  readonly disk: SmallDisk;
  /** Where the power stays on: for the histories. */
  readonly place: string;
  readonly layer: Layer;
}

/**
 * Nobody sees what is said after a power cut. Here processes live on for a moment, and an fsync that meets the end of
 * the file system's journal may even return as if it had flushed something.
 */
function seenUntil(ms: number, history: readonly Entry[]): Entry[] {
  return history.filter(({ type, mono }) => type !== "ok" || mono < ms);
}

/** Cuts the power while processes work on a new queue; returns how many acknowledged calls it lost. */
async function cut(seed: number, { kind, disk, place, layer }: Circumstances): Promise<number> {
  const random = new Random(seed);
  const location = path.join(disk.directory, "queue");
  const programs = KINDS[kind].map((fsync, i) => {
    const history = path.join(place, `${seed}.${i}.jsonl`);
    const program = new Program("../reliability/programs/power-load.mjs", { seed: seed + i, location, history, fsync });
    return { program, history, fsync };
  });
  await Promise.all(programs.map(({ program }) => program.hears("running")));
  const cutPower = await disk.powerSwitch();
  await sleep(random.between(20, 1_000)); // at any moment
  const name = random.pick([undefined, undefined, "localqueue.db", "localqueue.db", "localqueue.db-wal"]);
  if (name !== undefined) {
    disk.flush(path.join(location, name));
    await sleep(random.between(0, 50));
  }
  layer.planned();
  const cutAt = Number(process.hrtime.bigint() / 1000n) / 1000;
  await cutPower();
  await sleep(random.between(0, 100)); // some see that everything fails, some do not
  await Promise.all(programs.map(({ program }) => program.kill()));
  disk.restorePower();

  if (hasBegunAnew(location)) layer.count("cuts after the log began anew");
  await using queue = new SimpleQueue(location);
  const { ready, processing, acked } = await queue.stats();
  const rows = finalRows(location).map((row) => ({ ...row, payload: nameOf(row.payload) }));
  expect(ready + processing + acked).toBe(rows.length);
  const historyOf = (flushes: boolean) =>
    seenUntil(cutAt, readHistory(...programs.filter(({ fsync }) => fsync === flushes).map(({ history }) => history)));
  const found = checkCut({ durable: historyOf(true), relaxed: historyOf(false), rows });
  expect(found.violations.slice(0, 20)).toEqual([]);
  expect(faultsOf(location)).toEqual([]);
  layer.delivered();
  layer.count(`${kind} cuts`);
  layer.count(`${kind} acknowledged`, found.acknowledged);
  layer.count(`${kind} lost`, found.lost);
  // And it goes on.
  const { id } = await queue.put("after the cut");
  expect(id).toBeGreaterThan(rows.at(-1)?.id ?? 0);
  await queue.close();
  rmSync(location, { recursive: true });
  for (const { history } of programs) rmSync(history);
  return found.lost;
}

/** Layer G: the power fails. */
describeSmallDisks("when the power fails", () => {
  test("what was flushed is there, and of everything else a first part, without a gap", async () => {
    const layer = new Layer({ name: "power", rounds: 18 });
    const disk = new SmallDisk("ext4", MIB);
    const place = tempDirectory();
    let [relaxed, lost] = [0, 0];
    for (const seed of layer.seeds()) {
      await layer.round(seed, async () => {
        const kind = kindOf(seed);
        const lostNow = await cut(seed, { kind, disk, place, layer });
        if (kind !== "relaxed") return;
        relaxed++;
        lost += lostNow;
      });
    }
    layer.done();
    if (relaxed >= TELLING_CUTS && lost === 0)
      throw new Error("power: unknown, because no cut lost what it could lose");
  });
});
