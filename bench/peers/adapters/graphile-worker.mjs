export const graphileWorker = {
  name: "graphile-worker",
  title: "graphile-worker on PostgreSQL",
  package: "graphile-worker",
  server: "postgres",
  modes: [{}, { name: "fsync", fsync: true }],
  manyProcesses: true,
  settings: "a pool of 10 connections; listens for notifications, polls every 2 s",

  async open({ place }) {
    const { Logger, makeWorkerUtils, run } = await import("graphile-worker");
    const { default: pg } = await import("pg");
    const pgPool = new pg.Pool({ ...place.connection, max: 10 });
    pgPool.on("error", console.error);
    const logger = new Logger(() => (level, message) => level === "error" && console.error(message));
    const utils = await makeWorkerUtils({ pgPool, logger });
    await utils.migrate();
    const value = async (sql) => Object.values((await pgPool.query(sql)).rows[0])[0];
    const addJobs =
      "SELECT graphile_worker.add_jobs(ARRAY(SELECT json_populate_record(null::graphile_worker.job_spec, it) FROM json_array_elements($1::json) AS it))";
    return {
      put: (data) => utils.addJob("bench", data),
      putMany: (list) =>
        pgPool.query(addJobs, [JSON.stringify(list.map((payload) => ({ identifier: "bench", payload })))]),
      async work(slots, handle) {
        const taskList = { bench: (data) => handle(data) };
        const runner = await run({ pgPool, logger, taskList, concurrency: slots, noHandleSignals: true });
        return { stop: () => runner.stop() };
      },
      left: async () => Number(await value("SELECT count(*) FROM graphile_worker.jobs")),
      durability: async () =>
        `fsync = ${await value("SHOW fsync")}, synchronous_commit = ${await value("SHOW synchronous_commit")}`,
      async close() {
        await utils.release();
        await pgPool.end();
      },
    };
  },
};
