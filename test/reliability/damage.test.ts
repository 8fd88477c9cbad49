import { closeSync, cpSync, fstatSync, ftruncateSync, openSync, rmSync, writeSync } from "node:fs";
import path from "node:path";
import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf } from "../support/inspect.ts";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import { tempDirectory } from "../support/temp.ts";
import { Layer } from "./support/size.ts";

const JOBS = 2_500;
const PAGE_BYTES = 4096;

interface Damage {
  /** Overwrites what is in the file. */
  readonly inflict: (file: number, random: Random) => void;
  readonly codes: readonly string[];
  /** A worker cannot know that the disk will not come to its senses. */
  readonly workerGoesOn?: boolean;
}

/** All pages at once: what was written since is in the log, and pages that the program has just read it reads no more. */
function overwrite(file: number, page: (number: number) => Buffer, from = 1): void {
  const pages = fstatSync(file).size / PAGE_BYTES - from;
  writeSync(file, Buffer.concat(Array.from({ length: pages }, (_, n) => page(n))), 0, undefined, from * PAGE_BYTES);
}

/** A page that is like no other. */
function noise(random: Random): (number: number) => Buffer {
  const twice = Buffer.from(Array.from({ length: 2 * PAGE_BYTES }, () => random.below(256)));
  return (number) => twice.subarray(number % PAGE_BYTES, (number % PAGE_BYTES) + PAGE_BYTES);
}

const DAMAGES: Readonly<Record<string, Damage>> = {
  noise: {
    inflict: (file, random) => overwrite(file, noise(random)),
    codes: ["CORRUPT"],
  },
  zeros: { inflict: (file) => overwrite(file, () => Buffer.alloc(PAGE_BYTES)), codes: ["CORRUPT"] },
  "a text, from the very beginning": {
    inflict: (file) => overwrite(file, () => Buffer.alloc(PAGE_BYTES, "all work and no play "), 0),
    codes: ["CORRUPT", "NOT_A_DATABASE"],
  },
  "its end cut off": {
    inflict: (file) => ftruncateSync(file, 4 * PAGE_BYTES),
    codes: ["CORRUPT", "IO"],
    workerGoesOn: true,
  },
};

async function round(seed: number, layer: Layer, name: string, damage: Damage): Promise<void> {
  const place = tempDirectory();
  const [location, copy] = [path.join(place, "queue"), path.join(place, "copy")];
  const queue = new SimpleQueue(location);
  // More than SQLite keeps in memory.
  await queue.putMany(Array.from({ length: JOBS }, (_, i) => `${i} ${"x".repeat(2_000)}`));
  await queue.backup(copy);
  await queue.close();

  const program = new Program("../reliability/programs/damage.mjs", { location });
  await program.hears("running");
  layer.planned();
  // No queue is open in this process any more, so it holds no lock that closing the file would drop.
  const file = openSync(path.join(location, "localqueue.db"), "r+");
  damage.inflict(file, new Random(seed));
  closeSync(file);
  const refused = await program.hears("refused");
  layer.delivered();
  layer.count(`${refused["code"]} for ${name}`);
  expect(refused["name"]).toBe("StorageError");
  expect(damage.codes).toContain(refused["code"]);
  const { afterwards, busy } = await program.hears("tired");
  // Nothing is confirmed any more, and nothing is tried without end.
  expect(afterwards).toBe(0);
  expect(busy).toBeLessThan(0.5);
  await program.hears("closed");
  expect(await program.ends()).toEqual({ code: 0, signal: null, stderr: "" });
  const [ended] = program.said("worker").map(({ code }) => code);
  expect([...damage.codes, ...(damage.workerGoesOn ? ["ended well"] : [])]).toContain(ended);

  // Whoever restores the backup goes on from there.
  rmSync(location, { recursive: true });
  cpSync(copy, location, { recursive: true });
  const next = new SimpleQueue(location);
  expect(await next.stats()).toEqual({ ready: JOBS, processing: 0, acked: 0, failed: 0 });
  await next.put("goes on");
  await (await next.get()).ack();
  await next.close();
  expect(faultsOf(location)).toEqual([]);
  rmSync(place, { recursive: true });
}

test("a file that is damaged while it is open confirms nothing any more and says so, and a backup goes on", async () => {
  const layer = new Layer({ name: "damage", rounds: 1 });
  for (const seed of layer.seeds()) {
    for (const [name, damage] of Object.entries(DAMAGES)) {
      await layer.round(seed, () => round(seed, layer, name, damage));
    }
  }
  layer.done();
});
