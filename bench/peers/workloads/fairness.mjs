import { jobsFor } from "../support/adapt.mjs";
import { wrongIn, wrongLeft } from "../support/exact.mjs";
import { rateOf, stopAll, whileRound } from "../support/handled.mjs";
import { withPlace } from "../support/place.mjs";
import { ROUND_MS } from "../support/size.mjs";
import { onlyWithin } from "./fleet.mjs";

const PROCESSES = 8;

const slowestToFastest = (counts) => Math.min(...counts) / Math.max(...counts);

const fairPuts = {
  name: "fairness-put",
  title: "8 processes that put one after the other: the slowest to the fastest",
  unit: "ratio",
  takes: onlyWithin,
  round: (side, servers) =>
    withPlace(side, servers, async ({ keeper, start }) => {
      const clients = await start(PROCESSES);
      const put = (client, index) => client.ask("put", { first: index * 1_000_000, forMs: ROUND_MS, lanes: 1 });
      await Promise.all(clients.map((client) => client.ask("put", { first: 0, count: 5, lanes: 1 })));
      const counts = (await Promise.all(clients.map(put))).map(({ count }) => count);
      const jobs = counts.reduce((sum, count) => sum + count);
      const wrong = await wrongLeft(keeper, jobs + 5 * PROCESSES);
      await Promise.all(clients.map((client) => client.close()));
      await keeper.close();
      return { value: slowestToFastest(counts), jobs, wrong };
    }),
};

const fairWorkers = {
  name: "fairness-work",
  title: "8 worker processes with one slot on jobs that are there: the slowest to the fastest",
  unit: "ratio",
  adapts: true,
  takes: onlyWithin,
  round: (side, servers, memory) =>
    withPlace(side, servers, async ({ keeper, start }) => {
      const jobs = jobsFor(memory);
      const clients = await start(PROCESSES);
      await keeper.ask("put", { first: 0, count: jobs, lanes: 100, batch: 1_000 });
      await Promise.all(clients.map((client) => client.ask("work", { slots: 1 })));
      await whileRound(clients, jobs);
      const handled = await stopAll(clients);
      const times = handled.flatMap((it) => it.times).sort((a, b) => a - b);
      const ids = handled.flatMap((it) => it.ids);
      const wrong = [...wrongIn(jobs, ids), ...(await wrongLeft(keeper, jobs - ids.length))];
      await Promise.all(clients.map((client) => client.close()));
      await keeper.close();
      memory.rate = rateOf(times);
      // While they start, the first has all to itself.
      const [from, to] = [times[Math.floor(times.length * 0.3)], times[Math.floor(times.length * 0.95)]];
      const counts = handled.map((it) => it.times.filter((at) => at >= from && at <= to).length);
      return { value: slowestToFastest(counts), jobs, wrong };
    }),
};

export const fairnessWorkloads = [fairPuts, fairWorkers];
