import path from "node:path";

export const liteque = {
  name: "liteque",
  title: "liteque",
  package: "liteque",
  folder: "liteque",
  modes: [{}],
  manyProcesses: true,
  settings: "better-sqlite3 11.9.1, since it fails with later ones; WAL; polls every 10 ms",

  async open({ place }) {
    const { buildDBClient, Runner, SqliteQueue } = await import("../liteque/node_modules/liteque/dist/index.js");
    const db = buildDBClient(path.join(place.directory, "queue.db"), { runMigrations: true });
    const queue = new SqliteQueue("bench", db, { defaultJobArgs: { numRetries: 2 }, keepFailedJobs: false });
    return {
      put: (data) => queue.enqueue(data),
      async work(slots, handle) {
        const run = async ({ data }) => handle(data);
        const runner = new Runner(queue, { run }, { concurrency: slots, pollIntervalMs: 10, timeoutSecs: 60 });
        const ended = runner.run();
        return {
          stop() {
            runner.stop();
            return ended;
          },
        };
      },
      async left() {
        const { pending, pending_retry, running } = await queue.stats();
        return pending + pending_retry + running;
      },
      durability: () => `synchronous = ${db.$client?.pragma("synchronous", { simple: true }) ?? "NORMAL (its source)"}`,
      close() {},
    };
  },
};
