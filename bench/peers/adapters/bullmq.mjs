export const bullmq = {
  name: "bullmq",
  title: "BullMQ on Redis",
  package: "bullmq",
  server: "redis",
  modes: [{}, { name: "fsync", fsync: true }],
  manyProcesses: true,
  settings: "Redis on localhost; as shipped it keeps snapshots and no log, with fsync `appendfsync always`",

  async open({ place }) {
    const { Queue, Worker } = await import("bullmq");
    const { Redis } = await import("ioredis");
    const connection = { host: "127.0.0.1", port: place.port };
    const queue = new Queue("bench", { connection });
    await queue.waitUntilReady();
    const redis = new Redis(connection);
    const config = async (name) => `${name} ${JSON.stringify((await redis.config("GET", name))[1])}`;
    return {
      put: (data) => queue.add("job", data),
      putMany: (list) => queue.addBulk(list.map((data) => ({ name: "job", data }))),
      async work(slots, handle) {
        const worker = new Worker("bench", async ({ data }) => handle(data), { connection, concurrency: slots });
        worker.on("error", console.error);
        await worker.waitUntilReady();
        return { stop: () => worker.close() };
      },
      async left() {
        const counts = await queue.getJobCounts("waiting", "active", "delayed", "prioritized", "paused");
        return Object.values(counts).reduce((sum, jobs) => sum + jobs);
      },
      durability: async () => `${await config("appendonly")}, ${await config("appendfsync")}, ${await config("save")}`,
      close: () => queue.close(),
    };
  },
};
