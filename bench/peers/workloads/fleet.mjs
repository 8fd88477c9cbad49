import { jobsFor } from "../support/adapt.mjs";
import { wrongIn, wrongLeft } from "../support/exact.mjs";
import { rateOf, stopAll, whileRound } from "../support/handled.mjs";
import { withPlace } from "../support/place.mjs";

const PRODUCERS = 4;
const CONSUMERS = 8;

export const onlyWithin = ({ adapter }) => {
  if (adapter.anonymous) return "it is no queue";
  return adapter.manyProcesses ? undefined : "its processes cannot share a file";
};

/** Four processes put these jobs while eight handle as many; gives what each of the eight handled. */
export async function runFleet({ start }, { first, jobs, atOnce, bytes }) {
  const [producers, consumers] = await Promise.all([start(PRODUCERS), start(CONSUMERS)]);
  await Promise.all(consumers.map((client) => client.ask("work", { slots: atOnce })));
  const each = jobs / PRODUCERS;
  const puts = producers.map((client, index) =>
    client.ask("put", { first: first + index * each, count: each, lanes: atOnce, bytes }),
  );
  await Promise.all([...puts, whileRound(consumers, jobs)]);
  const handled = await stopAll(consumers);
  await Promise.all([...producers, ...consumers].map((client) => client.close()));
  return handled;
}

const fleet = (atOnce, bytes, title) => ({
  name: `fleet-${atOnce}${bytes > 1000 ? "-large" : ""}`,
  title: `4 processes put and 8 handle, ${title}`,
  unit: "per second",
  fsync: bytes < 1000,
  adapts: true,
  takes: onlyWithin,
  round: (side, servers, memory) =>
    withPlace(side, servers, async (place) => {
      const jobs = jobsFor(memory);
      const handled = await runFleet(place, { first: 0, jobs, atOnce, bytes });
      const ids = handled.flatMap((it) => it.ids);
      const wrong = [...wrongIn(jobs, ids), ...(await wrongLeft(place.keeper, jobs - ids.length))];
      await place.keeper.close();
      memory.rate = rateOf(handled.flatMap(({ times }) => times));
      return { value: memory.rate, jobs, wrong };
    }),
});

export const fleetWorkloads = [
  fleet(1, 100, "each one at a time, 100 B"),
  fleet(50, 100, "each 50 at a time, 100 B"),
  fleet(1, 102_400, "each one at a time, 100 KiB"),
  fleet(50, 102_400, "each 50 at a time, 100 KiB"),
];
