import { jobsFor } from "../support/adapt.mjs";
import { wrongIn, wrongLeft } from "../support/exact.mjs";
import { rateOf } from "../support/handled.mjs";
import { withPlace } from "../support/place.mjs";
import { BACKLOG, FILL_MS } from "../support/size.mjs";
import { onlyWithin, runFleet } from "./fleet.mjs";

/** All its rounds are on one file, which is filled once: as many jobs are put in each as are handled. */
export const backlogWorkload = {
  name: "backlog",
  title: `4 processes put and 8 handle, each 50 at a time, 100 B, with ${BACKLOG.toLocaleString("en-US")} jobs before them`,
  unit: "per second",
  fsync: false,
  adapts: true,
  /** It keeps a file over the rounds, by which they take turns. */
  keeps: true,
  takes: onlyWithin,
  run: (side, servers, memory, next) =>
    withPlace(side, servers, async (place) => {
      const fill = { first: 0, count: BACKLOG, forMs: FILL_MS, lanes: 100, batch: 1_000 };
      const { count: filled } = await place.keeper.ask("put", fill);
      let put = filled;
      const ids = [];
      while (await next()) {
        const jobs = Math.min(jobsFor(memory), Math.floor(filled / 8) * 4);
        const handled = await runFleet(place, { first: put, jobs, atOnce: 50 });
        put += jobs;
        ids.push(...handled.flatMap((it) => it.ids));
        memory.rate = rateOf(handled.flatMap(({ times }) => times));
        const wrong = [...wrongIn(put, ids), ...(await wrongLeft(place.keeper, put - ids.length))];
        next.tell({ value: memory.rate, jobs, wrong, note: `${filled.toLocaleString("en-US")} before them` });
      }
      await place.keeper.close();
    }),
};
