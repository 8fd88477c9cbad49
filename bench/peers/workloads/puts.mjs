import { wrongLeft } from "../support/exact.mjs";
import { withPlace } from "../support/place.mjs";
import { BULK, ROUND_MS, WARM_UP_MS } from "../support/size.mjs";

const puts = (name, title, how, bounds) => ({
  name,
  title,
  unit: "per second",
  fsync: true,
  takes: () => undefined,
  round: (side, servers) =>
    withPlace(side, servers, async ({ keeper }) => {
      const warm = await keeper.ask("put", { first: 0, forMs: WARM_UP_MS, ...how });
      const { count, tookMs } = await keeper.ask("put", { first: warm.count, ...bounds, ...how });
      const wrong = side.adapter.anonymous ? [] : await wrongLeft(keeper, warm.count + count);
      await keeper.close();
      return { value: (count / tookMs) * 1000, jobs: count, wrong };
    }),
});

export const putWorkloads = [
  puts("put-1", "put, one call after the other", { lanes: 1 }, { forMs: ROUND_MS }),
  puts("put-100", "put, 100 calls in flight", { lanes: 100 }, { forMs: ROUND_MS }),
  puts(
    "bulk",
    `bulk put of ${BULK.toLocaleString("en-US")} jobs, 1,000 a call`,
    { lanes: 100, batch: 1_000 },
    { count: BULK, forMs: 2 * ROUND_MS },
  ),
];
