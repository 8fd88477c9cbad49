import path from "node:path";

export const bunqueue = {
  name: "bunqueue",
  title: "bunqueue, embedded",
  package: "bunqueue",
  runtime: "bun",
  modes: [{ name: "buffered" }, { name: "durable" }],
  manyProcesses: false,
  settings: "under Bun; `buffered` confirms before the write, `durable` after the commit",

  async open({ mode, place }) {
    const { Queue, Worker } = await import("bunqueue/client");
    const where = { embedded: true, dataPath: path.join(place.directory, "queue.db") };
    const queue = new Queue("bench", where);
    const opts = { durable: mode.name === "durable" };
    return {
      put: (data) => queue.add("job", data, opts),
      putMany: (list) => queue.addBulk(list.map((data) => ({ name: "job", data, opts }))),
      async work(slots, handle) {
        const worker = new Worker("bench", async ({ data }) => handle(data), { ...where, concurrency: slots });
        return { stop: () => worker.close() };
      },
      async left() {
        const { waiting, active, delayed, prioritized = 0 } = await queue.getJobCounts();
        return waiting + active + delayed + prioritized;
      },
      durability: () => "synchronous = NORMAL (its source)",
      close: () => queue.close(),
    };
  },
};
