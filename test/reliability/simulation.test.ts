import { expect, test } from "vitest";
import { Simulation } from "./support/simulation.ts";
import { Layer } from "./support/size.ts";

/** Layer C: several processes on one file, all of whose steps, times and faults follow from a seed. */
test("whatever fails and whoever dies in between, nothing is lost, invented, or done by two", async () => {
  const layer = new Layer({ name: "simulation", rounds: 500, seconds: 90 });
  for (const seed of layer.seeds()) {
    await layer.round(seed, () => {
      const simulation = new Simulation(seed);
      const { verdict, violations, unknowns, counts } = simulation.run();
      expect({ verdict, violations, unknowns }).toEqual({ verdict: "valid", violations: [], unknowns: [] });
      layer.planned(simulation.planted);
      layer.delivered(simulation.struck);
      layer.count("kills", simulation.kills);
      for (const [what, n] of Object.entries(counts)) layer.count(what, n);
      simulation.close();
    });
  }
  layer.done();
});
