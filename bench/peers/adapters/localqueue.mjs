export const localqueue = {
  name: "localqueue",
  title: "localqueue",
  modes: [{}, { name: "fsync", fsync: true }],
  manyProcesses: true,
  settings: "as it comes",

  async open({ mode, place }) {
    const { SimpleQueue, Worker } = await import("../../../dist/index.js");
    const queue = new SimpleQueue(place.directory, { fsync: mode.fsync === true });
    await queue.stats();
    return {
      put: (data) => queue.put(data),
      putMany: (list) => queue.putMany(list),
      async work(slots, handle) {
        const worker = new Worker(queue, (job) => handle(job.data), { concurrency: slots });
        const ended = worker.run();
        return { stop: () => Promise.all([worker.stop(), ended]) };
      },
      async left() {
        const { ready, processing } = await queue.stats();
        return ready + processing;
      },
      async durability() {
        return `synchronous = ${(await queue.diagnostics()).synchronous}`;
      },
      close: () => queue.close(),
    };
  },
};
