import { rmSync } from "node:fs";
import { expect, test } from "vitest";
import { Program } from "../support/program.ts";
import { sabotagedEngine } from "../support/sabotaged.ts";
import { Layer } from "./support/size.ts";
import { newStage } from "./support/stage.ts";
import { assertValid, unexplained, workOffAndCheck } from "./support/work-off.ts";

const DEATHS = 12;
const QUEUES = ["orders", "mails", "bin", "few"];

/** How an engine's thread may end: before it does what it was told with that message, or after the COMMIT, unheard. */
const WAYS = ["throws", "exits", "out of memory"].flatMap((how) => [`${how} before`, `${how} unheard`]);
const SABOTAGE = `
  const ends = {
    throws: () => { throw new Error("injected"); },
    exits: () => process.exit(0),
    "out of memory": () => { for (const hoard = []; ; ) hoard.push(new Array(1_000).fill(hoard.length)); },
  };
  let unheard;
  const { receive } = Engine.prototype, { flush } = Outbox.prototype;
  Engine.prototype.receive = function (message) {
    const asks = ({ origin }) => origin.queue.startsWith("doomed: ");
    const command = message.kind === "batch" ? message.commands.find(asks) : undefined;
    const [, how, when] = command?.origin.queue.match(/^doomed: (.*) (before|unheard)$/) ?? [];
    if (when === "before") ends[how]();
    if (when === "unheard") unheard = ends[how];
    receive.call(this, message);
  };
  Outbox.prototype.flush = function () {
    unheard?.();
    flush.call(this);
  };`;

async function round(seed: number, layer: Layer): Promise<void> {
  const scene = newStage();
  const root = sabotagedEngine(SABOTAGE);
  const input = { ...scene, seed, deletes: false, limit: 40 };
  const program = new Program(
    new URL("test/reliability/programs/load.mjs", root).href,
    { ...input, number: 1, deaths: [...WAYS, "terminated"] },
    { env: { NODE_OPTIONS: "--max-old-space-size=96" } },
  );
  const neighbour = new Program("../reliability/programs/load.mjs", { ...input, number: 2 });
  layer.planned(DEATHS);
  for (let n = 0; n < DEATHS; n++) await program.hears("died", 60_000);
  for (const one of [program, neighbour]) await one.end(60_000);
  const deaths = program.said("died");
  layer.delivered(DEATHS);
  for (const { how } of deaths) layer.count(how as string);
  const { history, counts, ...findings } = await workOffAndCheck({ ...scene, queues: QUEUES });
  for (const [what, n] of Object.entries(counts)) layer.count(what, n);
  assertValid({ counts, ...findings });
  // Whoever was asking is told that nobody knows, or that it was not sent yet.
  const hit = unexplained(history, ({ f }) => f === "claim" || f === "put");
  layer.count("calls that were hit", hit.length);
  expect(hit.filter((call) => !/: (info|fail) IO$/.test(call))).toEqual([]);
  rmSync(scene.directory, { recursive: true });
}

test("however often an engine's thread dies, its process goes on, its callers are told, and nothing is lost", async () => {
  const layer = new Layer({ name: "engine-deaths", rounds: 2 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(seed, layer));
  layer.done();
});
