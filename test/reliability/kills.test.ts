import { rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { select } from "../support/inspect.ts";
import { type Message, Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import type { Call } from "./support/history.ts";
import { Layer } from "./support/size.ts";
import { newStage } from "./support/stage.ts";
import { assertValid, unexplained, workOffAndCheck } from "./support/work-off.ts";

const PROCESSES = 4;
const KILLS = 20;
const LIMIT = 40;
const QUEUES = ["orders", "mails", "bin", "few"];

/** Processes that do everything at random, and whoever was killed is replaced. */
class Crowd {
  readonly alive: Program[] = [];
  readonly complaints: Message[] = [];
  readonly #input: object;
  readonly #layer: Layer;
  #started = 0;

  constructor(input: object, layer: Layer) {
    this.#input = input;
    this.#layer = layer;
    for (let i = 0; i < PROCESSES; i++) this.#start();
  }

  #start(): void {
    this.alive.push(new Program("../reliability/programs/load.mjs", { ...this.#input, number: ++this.#started }));
  }

  async kill(victims: readonly Program[]): Promise<void> {
    const exits = await Promise.all(victims.map((victim) => victim.kill().then(() => victim.exited)));
    for (const { signal, stderr } of exits) {
      if (signal === "SIGKILL" && stderr === "") this.#layer.delivered();
      else throw new Error(`A process ended before it was killed (${signal}): ${stderr}`);
    }
    for (const victim of victims) {
      this.alive.splice(this.alive.indexOf(victim), 1);
      this.complaints.push(...victim.said("damaged"));
      this.#start();
    }
  }

  /** Holds a process up, perhaps in the middle of a transaction, perhaps for longer than its leases last. */
  async freeze(victim: Program, ms: number): Promise<void> {
    victim.signal("SIGSTOP");
    await sleep(ms);
    victim.signal("SIGCONT");
  }

  async end(): Promise<void> {
    await Promise.all(this.alive.map((program) => program.end(60_000)));
    for (const program of this.alive) this.complaints.push(...program.said("damaged"));
  }
}

/** What is wrong at a moment in the middle of everything, in a snapshot. */
function faultsNow(location: string): string[] {
  const rows = select(
    location,
    `SELECT queue, ready, processing, acked, failed,
      (SELECT json_array(count(*) FILTER (WHERE status = 0), count(*) FILTER (WHERE status = 1),
        count(*) FILTER (WHERE status = 2), count(*) FILTER (WHERE status = 3))
        FROM messages WHERE messages.queue = localqueue_counts.queue) AS real FROM localqueue_counts WHERE queue <> ''`,
  );
  return rows.flatMap(({ queue, ready, processing, acked, failed, real }) => {
    const told = JSON.stringify([ready, processing, acked, failed]);
    const tooMany = queue === "few" && Number(ready) + Number(processing) > LIMIT;
    return [
      ...(told === real ? [] : [`I19 counts: of ${queue} are ${told}, and should be ${real}`]),
      ...(tooMany ? [`I15 limit: ${queue} holds ${told}`] : []),
    ];
  });
}

/** Whether a call gives up soon where somebody else holds the lock. */
function isImpatient(call: Call): boolean {
  return call.f === "claim" || (call.f === "put" && call.jobs[0]?.queue === "few");
}

async function round(seed: number, layer: Layer): Promise<void> {
  const random = new Random(seed);
  const scene = newStage();
  const crowd = new Crowd({ ...scene, seed, deletes: seed % 2 === 0, limit: LIMIT }, layer);
  await Promise.all(crowd.alive.map((program) => program.hears("running")));
  layer.planned(KILLS);
  for (let kills = 0; kills < KILLS; ) {
    await sleep(random.between(20, 400)); // at any moment
    expect(faultsNow(scene.location)).toEqual([]);
    const event = random.weighted({ kill: 8, killAll: 1, freeze: 2 });
    if (event === "freeze") {
      layer.count("freezes");
      await crowd.freeze(random.pick(crowd.alive), random.between(100, 1_500));
      continue;
    }
    const victims = event === "kill" ? [random.pick(crowd.alive)] : crowd.alive.slice(0, KILLS - kills);
    kills += victims.length;
    await crowd.kill(victims);
  }
  await crowd.end();
  expect(crowd.complaints).toEqual([]);
  const { history, counts, ...findings } = await workOffAndCheck({ ...scene, queues: QUEUES });
  for (const [what, n] of Object.entries(counts)) layer.count(what, n);
  assertValid({ counts, ...findings });
  expect(unexplained(history, isImpatient)).toEqual([]);
  rmSync(scene.directory, { recursive: true });
}

test("processes that are killed at random lose nothing, do nothing twice, and leave a sound file", async () => {
  const layer = new Layer({ name: "kills", rounds: 5 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(seed, layer));
  layer.done();
});
