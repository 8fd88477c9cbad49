import fc from "fast-check";
import { expect, test } from "vitest";
import { type Act, ClientRun } from "./support/client-run.ts";
import { ScheduledThreads } from "./support/scheduled-threads.ts";
import { Layer } from "./support/size.ts";

const RUNS = 30;
const ACTS = 25;

const queue = fc.nat(1);
const which = fc.nat(3);
const act: fc.Arbitrary<Act> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      act: fc.constant("put" as const),
      queue,
      jobs: fc.integer({ min: 1, max: 3 }),
      aborts: fc.boolean(),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      act: fc.constant("claim" as const),
      queue,
      limit: fc.integer({ min: 1, max: 2 }),
      waits: fc.boolean(),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      act: fc.constant("settle" as const),
      how: fc.constantFrom("ack" as const, "nack" as const, "fail" as const, "release" as const),
      which,
    }),
  },
  { weight: 1, arbitrary: fc.record({ act: fc.constant("extend" as const), which }) },
  { weight: 4, arbitrary: fc.record({ act: fc.constant("abort" as const), which }) },
  { weight: 2, arbitrary: fc.record({ act: fc.constant("close" as const), queue }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant("kill" as const), afterWork: fc.boolean() }) },
);

/** Layer B: the order in which a program's calls, the engine's work, answers, aborts and ends meet. */
test("in whatever order messages, aborts, closes and the death of an engine meet, every call is answered truly", async () => {
  const layer = new Layer({ name: "scheduler", rounds: 20, seconds: 60 });
  for (const seed of layer.seeds()) {
    await layer.round(seed, async () => {
      const acts = fc.array(act, { maxLength: ACTS, size: "max" });
      const property = fc.asyncProperty(fc.scheduler(), acts, async (scheduler, given) => {
        const threads = new ScheduledThreads((label, run) => {
          void scheduler.schedule(Promise.resolve(), label).then(run);
        });
        const run = new ClientRun((afterWork) => threads.kill(afterWork));
        try {
          const steps = given.map((each) => ({ label: each.act, builder: async () => run.perform(each) }));
          await scheduler.waitFor(scheduler.scheduleSequence(steps).task);
          await scheduler.waitIdle();
          await scheduler.waitFor(run.goOn());
          await scheduler.waitFor(run.end());
          const { verdict, violations, unknowns, stillHeld, counts } = run.judge();
          expect({ verdict, violations, unknowns, stillHeld }).toEqual({
            verdict: "valid",
            violations: [],
            unknowns: [],
            stillHeld: [],
          });
          layer.count("orders");
          layer.count("kills", threads.kills);
          layer.count("calls", counts.calls);
          layer.count("open", counts.open);
        } finally {
          threads.restore();
          run.remove();
        }
      });
      await fc.assert(property, { seed, numRuns: RUNS, timeout: 10_000 });
    });
  }
  layer.done();
});
