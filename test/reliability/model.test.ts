import fc from "fast-check";
import { test } from "vitest";
import { COMMANDS } from "./support/model-commands.ts";
import { ModelRun } from "./support/model-run.ts";
import { Layer } from "./support/size.ts";

const RUNS = 20;
const COMMANDS_PER_RUN = 60;

/** Layer A: a queue and the shortest description of what it promises do the same, whatever they are asked. */
test("a queue does what its model does, whatever is asked of it and however the clock is set", async () => {
  const layer = new Layer({ name: "model", rounds: 20, seconds: 60 });
  for (const seed of layer.seeds()) {
    await layer.round(seed, () => {
      const commands = fc.commands(COMMANDS, { maxCommands: COMMANDS_PER_RUN, size: "max" });
      const property = fc.property(commands, (given) => {
        const run = new ModelRun();
        try {
          fc.modelRun(() => ({ model: run.model, real: run }), given);
          layer.count("sequences");
          layer.count("deliveries", run.leases.length);
        } finally {
          run.close();
        }
      });
      fc.assert(property, { seed, numRuns: RUNS });
    });
  }
  layer.done();
});
