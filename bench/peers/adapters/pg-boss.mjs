const QUEUE = "bench";
/** It handles jobs in batches: this many, or as many as there are slots. */
const BATCH = 50;

async function use(boss, options) {
  boss.on("error", console.error);
  await boss.start();
  if ((await boss.getQueue(QUEUE)) === null) await boss.createQueue(QUEUE, { notify: true });
  return {
    put: (data) => boss.send(QUEUE, data),
    putMany: (list) =>
      boss.insert(
        QUEUE,
        list.map((data) => ({ data })),
      ),
    async work(slots, handle) {
      const all = async (jobs) => {
        if (slots > 1) await Promise.all(jobs.map(({ data }) => handle(data)));
        else for (const { data } of jobs) await handle(data);
      };
      const batchSize = Math.max(slots, BATCH);
      await boss.work(QUEUE, { batchSize, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }, all);
      return { stop: () => boss.offWork(QUEUE, { wait: true }) };
    },
    async left() {
      const { rows } = await options.query(
        "SELECT count(*)::int AS jobs FROM pgboss.job WHERE name = 'bench' AND state < 'completed'",
      );
      return rows[0].jobs;
    },
    async durability() {
      const show = async (name) => `${name} = ${Object.values((await options.query(`SHOW ${name}`)).rows[0])[0]}`;
      return `${await show("fsync")}, ${await show("synchronous_commit")}`;
    },
    async close() {
      await boss.stop({ graceful: true, timeout: 10_000 });
      await options.close();
    },
  };
}

const settings = "listens for notifications, polls every 0.5 s; a worker fetches 50 jobs at once, or one for each slot";

export const pgBoss = {
  name: "pg-boss",
  title: "pg-boss on PostgreSQL",
  package: "pg-boss",
  server: "postgres",
  modes: [{}, { name: "fsync", fsync: true }],
  manyProcesses: true,
  settings,

  async open({ place }) {
    const { PgBoss } = await import("pg-boss");
    const { default: pg } = await import("pg");
    const pool = new pg.Pool({ ...place.connection, max: 1 });
    const query = (sql) => pool.query(sql);
    const boss = new PgBoss({ ...place.connection, max: 10, useListenNotify: true });
    return use(boss, { query, close: () => pool.end() });
  },
};

export const pgBossEmbedded = {
  name: "pg-boss-pglite",
  title: "pg-boss on PGlite",
  package: "pg-boss",
  modes: [{}],
  manyProcesses: false,
  settings: `PGlite inside the process; ${settings}`,

  async open({ place }) {
    const { PGlite } = await import("@electric-sql/pglite");
    const { fromPglite, PgBoss } = await import("pg-boss");
    const db = new PGlite(`${place.directory}/pglite`);
    await db.waitReady;
    const boss = new PgBoss({ backend: "pglite", db: fromPglite(db), useListenNotify: true });
    return use(boss, { query: (sql) => db.query(sql), close: () => db.close() });
  },
};
