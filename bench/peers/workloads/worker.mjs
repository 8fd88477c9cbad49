import { jobsFor } from "../support/adapt.mjs";
import { wrongIn, wrongLeft } from "../support/exact.mjs";
import { rateOf, stopAll, whileRound } from "../support/handled.mjs";
import { withPlace } from "../support/place.mjs";

const worker = (slots) => ({
  name: `worker-${slots}`,
  title: `one worker process with ${slots} ${slots === 1 ? "slot" : "slots"}, jobs that are there`,
  unit: "per second",
  fsync: slots !== 10,
  adapts: true,
  takes: ({ adapter }) => (slots > 1 && adapter.maxSlots === 1 ? "it has one slot" : undefined),
  round: (side, servers, memory) =>
    withPlace(side, servers, async ({ keeper, start }) => {
      const jobs = jobsFor(memory);
      await keeper.ask("put", { first: 0, count: jobs, lanes: 100, batch: 1_000 });
      const [consumer] = side.adapter.manyProcesses ? await start() : [keeper];
      await consumer.ask("work", { slots, total: jobs });
      await whileRound([consumer], jobs);
      const [{ ids, times }] = await stopAll([consumer]);
      const wrong = side.adapter.anonymous
        ? []
        : [...wrongIn(jobs, ids), ...(await wrongLeft(keeper, jobs - ids.length))];
      if (consumer !== keeper) await consumer.close();
      await keeper.close();
      memory.rate = rateOf(times);
      return { value: memory.rate, jobs, wrong };
    }),
});

export const workerWorkloads = [1, 10, 100].map(worker);
