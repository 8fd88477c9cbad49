import path from "node:path";

const logger = { error: console.error, warn() {}, info() {}, debug() {} };
const TYPE = "bench";

export const plainjob = {
  name: "plainjob",
  title: "plainjob",
  package: "plainjob",
  modes: [{}],
  manyProcesses: true,
  maxSlots: 1,
  settings: "better-sqlite3; polls every 10 ms (default 1 s)",

  async open({ place }) {
    const { default: Database } = await import("better-sqlite3");
    const { better, defineQueue, defineWorker, JobStatus } = await import("plainjob");
    const db = new Database(path.join(place.directory, "queue.db"));
    const queue = defineQueue({ connection: better(db), logger });
    const count = (status) => queue.countJobs({ type: TYPE, status });
    return {
      put: (data) => queue.add(TYPE, data),
      putMany: (list) => queue.addMany(TYPE, list),
      async work(_slots, handle) {
        const processor = async ({ data }) => handle(JSON.parse(data));
        const worker = defineWorker(TYPE, processor, { queue, logger, pollIntervall: 10 });
        const ended = worker.start();
        return { stop: () => Promise.all([worker.stop(), ended]) };
      },
      left: () => count(JobStatus.Pending) + count(JobStatus.Processing),
      durability: () => `synchronous = ${db.pragma("synchronous", { simple: true })}`,
      close: () => queue.close(),
    };
  },
};
