import { expect, test } from "vitest";
import { faultsOf, select } from "../support/inspect.ts";
import { Program } from "../support/program.ts";
import { tempDirectory } from "../support/temp.ts";
import { Layer } from "./support/size.ts";

async function round(layer: Layer): Promise<void> {
  const location = tempDirectory();
  const opens = layer.isCampaign ? 200 : 100;
  const limited = { through: ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh"] };
  const program = new Program("../reliability/programs/descriptors.mjs", { location, opens }, limited);
  layer.planned();
  expect(await program.hears("exhausted")).toMatchObject({ code: "EMFILE" });
  layer.delivered();
  const without = await program.hears("without", 60_000);
  for (const outcome of [without["early"], without["late"]]) {
    expect(["done", "StorageError IO", "StorageError BAD_LOCATION"]).toContain(outcome);
  }
  expect(await program.hears("with", 60_000)).toMatchObject({ early: "done", late: "done" });
  const { before, after } = await program.hears("opened", opens * 1_000);
  expect(Number(after)).toBeLessThanOrEqual(Number(before));
  expect(await program.ends()).toEqual({ code: 0, signal: null, stderr: "" });
  layer.count("opens", opens);
  const confirmed = 3 + opens + [without["early"], without["late"]].filter((outcome) => outcome === "done").length;
  expect(select(location, "SELECT count(*) AS jobs FROM messages")).toEqual([{ jobs: confirmed }]);
  expect(faultsOf(location)).toEqual([]);
}

test("a process without file descriptors is told so and goes on when it has some, and opening often takes none", async () => {
  const layer = new Layer({ name: "environment.descriptors", rounds: 1 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(layer));
  layer.done();
});
