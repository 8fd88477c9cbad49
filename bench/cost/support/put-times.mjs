import { performance } from "node:perf_hooks";
import { assertStats } from "./exact.mjs";
import { withLimit } from "./limit.mjs";
import { payload, payloadBytes } from "./payload.mjs";
import { inLanes, withNewQueue } from "./queue.mjs";

/** How long so many puts take, in milliseconds, with `lanes` of them under way at any time, after `warmUp` puts. */
export function timeOfPuts({ fsync = false, lanes, warmUp, jobs }) {
  return withNewQueue({ fsync }, async (queue) => {
    const put = (count) => {
      let left = count;
      return inLanes(
        lanes,
        () => left-- > 0,
        () => queue.put(payload),
      );
    };
    await put(warmUp);
    const start = performance.now();
    await put(jobs);
    const took = performance.now() - start;
    await assertStats(queue, { ready: warmUp + jobs });
    return took;
  });
}

/** The same for the limit, with so many in each transaction. */
export function timeOfLimitedPuts({ fsync = false, lanes, warmUp, jobs }) {
  return withLimit({ fsync }, (file) => {
    const put = (count) => {
      for (let done = 0; done < count; done += lanes) file.put(payloadBytes, lanes);
    };
    put(warmUp);
    const start = performance.now();
    put(jobs);
    return performance.now() - start;
  });
}
