import { figure } from "./lines.mjs";

/** Those that run inside the program and write to the disk what a put confirms. */
const EMBEDDED = ["plainjob", "liteque", "sidequest", "bunqueue durable", "python"];
const EMBEDDED_FSYNC = ["python fsync"];

const timesThe = (workload, sides, atLeast) => ({ workload, sides, reached: ({ ours }) => ours, atLeast });
const own = (workload, reached, bound) => ({ workload, sides: ["localqueue"], reached, ...bound });

/** What the project wants to reach, all of them ratios or bounds within one run. */
const MACHINE = {
  "100 puts in flight: rate beside the limit": timesThe("put-100", ["limit"], 0.7),
  "the same with fsync": timesThe("put-100", ["limit fsync"], 0.6),
  "one worker with 100 slots: rate beside the limit": timesThe("worker-100", ["limit"], 0.6),
  "one put after the other: time beside the fastest embedded peer": {
    workload: "put-1",
    sides: EMBEDDED,
    reached: ({ ours }) => 1 / ours,
    atMost: 1.3,
  },
  "100 puts in flight: rate beside the fastest embedded peer": timesThe("put-100", EMBEDDED, 5),
  "the same with fsync, of those that can": timesThe("put-100", EMBEDDED_FSYNC, 20),
  "4 processes put and 8 handle, one at a time: rate beside the Python package": timesThe("fleet-1", ["python"], 3),
  "the same, 50 at a time": timesThe("fleet-50", ["python"], 10),
  "the same with 1,000,000 jobs before them": timesThe("backlog", ["python"], 100),
  "put to start, p50, in ms": own("latency", ({ value }) => value, { atMost: 0.5 }),
  "put to start, p99, in ms": own("latency", ({ p99 }) => p99, { atMost: 5 }),
  "memory gained with 100,000 jobs, in MB": own("memory", ({ value }) => value, { atMost: 1 }),
  "8 processes put: the slowest beside the fastest": own("fairness-put", ({ value }) => value, { atLeast: 0.25 }),
  "8 processes handle: the slowest beside the fastest": own("fairness-work", ({ value }) => value, { atLeast: 0.25 }),
};

const SERVED = ["pg-boss", "graphile-worker"];
const SERVED_FSYNC = SERVED.map((name) => `${name} fsync`);
const POSTGRES = {
  "100 puts in flight: rate beside the faster of the two": timesThe("put-100", SERVED, 1),
  "the same with fsync": timesThe("put-100", SERVED_FSYNC, 1),
  "one worker with 100 slots: rate beside the faster of the two": timesThe("worker-100", SERVED, 1),
  "one worker with 100 slots, with fsync": timesThe("worker-100", SERVED_FSYNC, 1),
  "4 processes put and 8 handle, 50 at a time": timesThe("fleet-50", SERVED, 1),
  "4 processes put and 8 handle, 50 at a time, with fsync": timesThe("fleet-50", SERVED_FSYNC, 1),
};
const GOALS = { machine: MACHINE, postgres: POSTGRES };

/** The one of these sides that came off best; `undefined` = none took part. */
function best(workload, sides) {
  const found = (workload?.sides ?? []).filter(({ side, value }) => sides.includes(side) && value !== undefined);
  return found.sort((a, b) => b.value - a.value)[0];
}

function row([title, { workload, sides, reached, atLeast, atMost }], { peers, workloads }) {
  const side = best(workloads[workload], sides);
  const asked = atLeast === undefined ? `≤ ${atMost}` : `≥ ${atLeast}`;
  if (side === undefined) return [title, asked, "–", ""];
  const value = reached(side);
  const isReached = atLeast === undefined ? value <= atMost : value >= atLeast;
  const beside = sides.length > 1 ? ` (${peers[side.side].title})` : "";
  return [title, asked, `${figure(value)}${beside}`, isReached ? "yes" : "**no**"];
}

/** The rows of a table of what was wanted and what was reached. */
export function goals(field, results) {
  return Object.entries(GOALS[field]).map((goal) => row(goal, results));
}
