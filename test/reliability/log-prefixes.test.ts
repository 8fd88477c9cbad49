import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { openFile } from "../support/database.ts";
import { TestEngine } from "../support/engine-harness.ts";
import { faultsOf } from "../support/inspect.ts";
import { Random } from "../support/random.mjs";
import { frameAt, LOG_HEADER_BYTES, type LogShape, shapeOf } from "./support/log-file.ts";
import { memoryDirectory } from "./support/memory-directory.ts";
import { type Recording, record, stateOf } from "./support/recording.ts";
import { Layer } from "./support/size.ts";

/** One open in so many also goes on with the queue. */
const GO_ON = 10;

interface Damage {
  readonly what: string;
  readonly log: Buffer;
  /** Frames that it left whole. */
  readonly frames: number;
}

/** The log cut between all frames and inside of each, and a bit of each flipped. */
function* damages({ log }: Recording, shape: LogShape, random: Random): Generator<Damage> {
  const all = shape.frames;
  const cut = (at: number, frames: number): Damage => ({ what: `cut at ${at}`, log: log.subarray(0, at), frames });
  const flip = (from: number, bytes: number, frames: number): Damage => {
    const [at, bit] = [random.between(from, from + bytes - 1), random.between(0, 7)];
    const flipped = Buffer.from(log);
    flipped[at] = (flipped[at] as number) ^ (1 << bit);
    return { what: `bit ${bit} of byte ${at} flipped`, log: flipped, frames };
  };
  yield cut(random.between(0, LOG_HEADER_BYTES - 1), 0);
  yield flip(0, LOG_HEADER_BYTES, 0);
  for (let frame = 0; frame < all; frame++) {
    const at = frameAt(shape, frame);
    yield cut(at, frame);
    yield cut(at + random.between(1, shape.frameBytes - 1), frame);
    yield flip(at, random.chance(0.3) ? 24 : shape.frameBytes, frame);
  }
  const end = frameAt(shape, all);
  yield cut(end, all);
  if (end === log.length) return;
  yield cut(random.between(end, log.length - 1), all);
  yield flip(end, log.length - end, all);
}

/** Opens the files as whoever comes after a crash does, and says what is there. */
function open(directory: string, database: Buffer, log: Buffer, goesOn: boolean): { state: string; faults: string[] } {
  const file = path.join(directory, "localqueue.db");
  writeFileSync(file, database);
  writeFileSync(`${file}-wal`, log);
  const engine = new TestEngine({ directory, idle: true, closedByCaller: true });
  try {
    const db = openFile(directory);
    const state = stateOf(db);
    db.close();
    const faults = faultsOf(directory);
    if (goesOn) {
      const put = engine.put("new", { queue: "new" });
      engine.run();
      const claim = engine.claim({ queue: "new" });
      engine.run();
      if (claim.delivery.id !== put.put?.[0]?.id) faults.push("a new job was not delivered");
      faults.push(...faultsOf(directory));
    }
    return { state, faults };
  } finally {
    engine.close();
  }
}

function check(recording: Recording, random: Random, layer: Layer): void {
  const shape = shapeOf(recording.log);
  layer.count("commits", shape.commitsWithin.at(-1));
  for (const { what, log, frames } of damages(recording, shape, random)) {
    layer.planned();
    const directory = memoryDirectory();
    const commits = shape.commitsWithin[frames] as number;
    const expected = recording.states[commits];
    if (expected === undefined) throw new Error(`what commit ${commits} left was not recorded`);
    const goesOn = random.chance(1 / GO_ON);
    expect(open(directory, recording.database, log, goesOn), `${what}, behind commit ${commits}`).toEqual({
      state: expected,
      faults: [],
    });
    layer.delivered();
    rmSync(directory, { recursive: true });
  }
}

/** Layer H: what a crash may leave of the write-ahead log. */
test("wherever the log ends, or is damaged, what was committed before is there, and nothing else", async () => {
  const layer = new Layer({ name: "log-prefixes", rounds: 2, seconds: 30 });
  for (const seed of layer.seeds()) {
    await layer.round(seed, () => {
      for (const recording of record(seed)) check(recording, new Random(seed), layer);
    });
  }
  layer.done();
});
