import { cpSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf, select } from "../support/inspect.ts";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import { tempDirectory } from "../support/temp.ts";
import { until } from "../support/until.ts";
import { Layer } from "./support/size.ts";

/** How many processes die while they open the file of one round. */
const KILLS = 12;
/** They may also come too late, and find it open. */
const ATTEMPTS = 10 * KILLS;
const RIVALS = 2;
/** Before the second statement nothing of the file is read; in it the log is recovered. */
const FIRST_READ = 2;
const STRIKES = { opening: 1, reading: 3 };

/** A file that is opened again and again, and never closed. */
class Ruin {
  readonly #place: string = tempDirectory();
  readonly #location: string = path.join(this.#place, "queue");
  /** The numbers of the jobs whose put was confirmed, and how their payload begins. */
  readonly #confirmed = new Map<number, string>();
  readonly #random: Random;
  readonly #layer: Layer;
  /** About how long it takes to open the file, from the beginning and from the first read. */
  readonly #openMs = { opening: 20, reading: 5 };

  constructor(random: Random, layer: Layer) {
    this.#random = random;
    this.#layer = layer;
  }

  /** A process puts jobs, and is killed at any moment. */
  async extend(): Promise<void> {
    const bytes = this.#random.between(1_000, 40_000);
    const program = new Program("../reliability/programs/recovery.mjs", { location: this.#location, bytes });
    await program.hears("put");
    const enough = this.#random.between(2, 300);
    await until(() => program.said("put").length > enough, 30_000);
    await sleep(this.#random.below(5)); // at any moment
    await program.kill();
    for (const { id, start } of program.said("put")) this.#confirmed.set(id as number, start as string);
  }

  /** Some open it at once, and are killed in that; resolves to how many of them were. */
  async openAndDie(): Promise<number> {
    const location = this.#location;
    const rivals = Array.from({ length: this.#random.between(1, RIVALS) }, () => {
      const strike = this.#random.weighted(STRIKES);
      const killAfterMs = this.#random.next() * this.#openMs[strike];
      const input = { location, statement: strike === "opening" ? 0 : FIRST_READ, killAfterMs };
      return { strike, program: new Program("../reliability/programs/recovery.mjs", input) };
    });
    let killed = 0;
    for (const { strike, program } of rivals) {
      expect(await program.ends(60_000)).toEqual({ code: null, signal: "SIGKILL", stderr: "" });
      expect(program.said("opening")).toHaveLength(1);
      const [opened] = program.said("open");
      if (opened === undefined) {
        killed++;
        const executed = program.said("executes").length;
        if (executed === FIRST_READ) this.#layer.count("in the recovery");
        else this.#layer.count(executed < FIRST_READ ? "before it" : "after it");
        this.#openMs[strike] *= 1.1;
      } else {
        this.#layer.count("too late");
        this.#openMs[strike] = (this.#openMs[strike] + Number(opened["ms"])) / 2;
      }
    }
    return killed;
  }

  /** Looks at a copy: what is left as it is can be struck again. */
  async check(): Promise<void> {
    const copy = path.join(this.#place, "copy");
    cpSync(this.#location, copy, { recursive: true });
    await this.#checkAt(copy);
    rmSync(copy, { recursive: true });
  }

  async #checkAt(location: string): Promise<void> {
    const queue = new SimpleQueue(location);
    await queue.put("after all");
    await queue.close();
    const rows = select(location, "SELECT id, substr(CAST(payload AS TEXT), 2, 16) AS start FROM messages");
    const found = new Map(rows.map(({ id, start }) => [id, start]));
    const missing = [...this.#confirmed].filter(([id, start]) => found.get(id) !== start);
    expect(missing).toEqual([]);
    expect(faultsOf(location)).toEqual([]);
  }

  async end(): Promise<void> {
    this.#layer.count("confirmed", this.#confirmed.size);
    await this.#checkAt(this.#location);
    rmSync(this.#place, { recursive: true });
  }
}

async function round(seed: number, layer: Layer): Promise<void> {
  const random = new Random(seed);
  const ruin = new Ruin(random, layer);
  await ruin.extend();
  let kills = 0;
  for (let attempts = 0; kills < KILLS; attempts++) {
    if (attempts === ATTEMPTS) throw new Error(`unknown, because only ${kills} of ${KILLS} died while opening`);
    const killed = await ruin.openAndDie();
    kills += killed;
    layer.planned(killed);
    layer.delivered(killed);
    if (random.chance(0.3)) await ruin.check();
    if (random.chance(0.2)) await ruin.extend();
  }
  await ruin.end();
}

test("processes that are killed while they open what others left behind, one after the other, leave everything there", async () => {
  const layer = new Layer({ name: "recovery", rounds: 2 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(seed, layer));
  layer.done();
});
