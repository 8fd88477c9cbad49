import { withPlace } from "../support/place.mjs";
import { CHURN_JOBS, CHURN_MS } from "../support/size.mjs";

const MEGABYTE = 1024 * 1024;
const PER = 100_000;

/** By how much the memory grew with each job, by the least squares. */
function slopeOf(samples) {
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [x, y] = [mean(samples.map(([jobs]) => jobs)), mean(samples.map(([, rss]) => rss))];
  const above = samples.reduce((sum, [jobs, rss]) => sum + (jobs - x) * (rss - y), 0);
  return above / samples.reduce((sum, [jobs]) => sum + (jobs - x) ** 2, 0);
}

export const memoryWorkload = {
  name: "memory",
  title: `memory that one process gains for each 100,000 jobs that it puts and handles, up to ${CHURN_JOBS.toLocaleString("en-US")}`,
  unit: "MB",
  rounds: 1,
  takes: ({ adapter }) => (adapter.anonymous ? "it is no queue" : undefined),
  round: (side, servers) =>
    withPlace(side, servers, async ({ keeper }) => {
      const input = { count: CHURN_JOBS, batch: 500, slots: 50, forMs: CHURN_MS };
      const { samples, handled, wrong } = await keeper.ask("churn", input);
      await keeper.close();
      // The heap grows to its size in the first half.
      const settled = samples.slice(Math.floor(samples.length / 2));
      const value = settled.length < 3 ? Number.NaN : (slopeOf(settled) * PER) / MEGABYTE;
      const peak = Math.max(...samples.map(([, rss]) => rss)) / MEGABYTE;
      const faults = wrong > 0 ? [`${wrong} jobs not exactly once`] : [];
      const note = `${handled.toLocaleString("en-US")} jobs, ${Math.round(peak)} MB at most`;
      return { value, jobs: handled, wrong: faults, note };
    }),
};
