import { percentile } from "../../cost/support/rounds.mjs";
import { wrongIn } from "../support/exact.mjs";
import { stopAll, untilHandled } from "../support/handled.mjs";
import { withPlace } from "../support/place.mjs";
import { PACED_PUTS, WARM_UP_MS } from "../support/size.mjs";
import { onlyWithin } from "./fleet.mjs";

const PAUSE_MS = 15;

export const latencyWorkload = {
  name: "latency",
  title: "from a put to the start of the handler in another process, 5 to 25 ms apart: p50",
  also: { p99: "p99" },
  unit: "ms",
  takes: onlyWithin,
  round: (side, servers) =>
    withPlace(side, servers, async ({ keeper, start }) => {
      const [consumer] = await start();
      await consumer.ask("work", { slots: 1 });
      const warm = await keeper.ask("put", { first: 0, forMs: WARM_UP_MS, lanes: 1 });
      await untilHandled([consumer], warm.count);
      const { times: putAt } = await keeper.ask("pace", { first: warm.count, count: PACED_PUTS, pauseMs: PAUSE_MS });
      await untilHandled([consumer], warm.count + PACED_PUTS);
      const [{ ids, times }] = await stopAll([consumer]);
      await consumer.close();
      await keeper.close();
      const latencies = [];
      ids.forEach((id, index) => {
        if (id >= warm.count) latencies.push(times[index] - putAt[id - warm.count]);
      });
      const wrong = wrongIn(warm.count + PACED_PUTS, ids);
      if (ids.length < warm.count + PACED_PUTS) wrong.push(`${warm.count + PACED_PUTS - ids.length} jobs missing`);
      return { value: percentile(latencies, 50), p99: percentile(latencies, 99), jobs: PACED_PUTS, wrong };
    }),
};
