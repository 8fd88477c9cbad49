import { setTimeout as sleep } from "node:timers/promises";
import { stopAll, untilHandled } from "../support/handled.mjs";
import { withPlace } from "../support/place.mjs";
import { IDLE_MS, SETTLE_MS } from "../support/size.mjs";

const SLOTS = 10;
const JOBS = 20;

export const idleWorkload = {
  name: "idle",
  title: "CPU of a worker process with 10 slots and no jobs",
  unit: "% of a core",
  takes: ({ adapter }) => (adapter.anonymous ? "it is no queue" : undefined),
  round: (side, servers) =>
    withPlace(side, servers, async ({ keeper, start }) => {
      const [consumer] = side.adapter.manyProcesses ? await start() : [keeper];
      await consumer.ask("work", { slots: SLOTS });
      // A worker that has worked before has all its watches and timers.
      await keeper.ask("put", { first: 0, count: JOBS, lanes: 1 });
      await untilHandled([consumer], JOBS);
      await sleep(SETTLE_MS);
      const before = await consumer.ask("cpu");
      await sleep(IDLE_MS);
      const after = await consumer.ask("cpu");
      await stopAll([consumer]);
      if (consumer !== keeper) await consumer.close();
      await keeper.close();
      return { value: ((after.cpuMs - before.cpuMs) / (after.at - before.at)) * 100, jobs: 0, wrong: [] };
    }),
};
