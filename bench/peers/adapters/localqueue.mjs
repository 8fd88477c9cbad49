/** How a queue is used, wherever it is. */
async function use(location, options) {
  const { SimpleQueue, Worker } = await import("../../../dist/index.js");
  const queue = new SimpleQueue(location, options);
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
      const { synchronous, durabilityMode } = await queue.diagnostics();
      return synchronous === undefined ? `durabilityMode = ${durabilityMode}` : `synchronous = ${synchronous}`;
    },
    close: () => queue.close(),
  };
}

export const localqueue = {
  name: "localqueue",
  title: "localqueue",
  modes: [{}, { name: "fsync", fsync: true }],
  manyProcesses: true,
  settings: "as it comes",
  open: ({ mode, place }) => use(place.directory, { fsync: mode.fsync === true }),
};

export const localqueueOnPostgres = {
  ...localqueue,
  name: "localqueue-postgres",
  title: "localqueue on PostgreSQL",
  server: "postgres",
  settings: "as it comes: up to 4 connections, one that listens, one that renews leases",
  open({ place: { connection } }) {
    const { host, port, user, database } = connection;
    return use(`postgres://${user}@/${database}?host=${encodeURIComponent(host)}&port=${port}`, {});
  },
};
