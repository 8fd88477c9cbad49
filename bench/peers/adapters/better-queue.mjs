import path from "node:path";

export const betterQueue = {
  name: "better-queue",
  title: "better-queue on SQLite",
  package: "better-queue",
  modes: [{}],
  manyProcesses: false,
  settings: "better-queue-sqlite; a put counts when the peer says `queued`, which is before the row is written",

  async open({ place }) {
    const { default: Queue } = await import("better-queue");
    const { default: Store } = await import("better-queue-sqlite");
    const store = new Store({ path: path.join(place.directory, "queue.db") });
    let handle;
    const run = async (task, done) => {
      await handle(task);
      done(null);
    };
    const queue = new Queue(run, { store, concurrent: 1, autoResume: false });
    queue.pause();
    const put = (data) =>
      new Promise((resolve, reject) => {
        queue
          .push({ id: `j${data.n}`, ...data })
          .on("queued", resolve)
          .on("failed", reject);
      });
    const row = (sql) =>
      new Promise((resolve, reject) => {
        store._db.get(sql, (error, found) => (error ? reject(error) : resolve(found)));
      });
    return {
      put,
      async work(slots, handler) {
        handle = handler;
        queue.concurrent = slots;
        queue.resume();
        return { stop: () => queue.pause() };
      },
      left: async () => (await row("SELECT count(*) AS jobs FROM task")).jobs,
      durability: async () => {
        const { synchronous } = await row("PRAGMA synchronous");
        return `synchronous = ${synchronous}, journal_mode = ${(await row("PRAGMA journal_mode")).journal_mode}`;
      },
      close() {},
    };
  },
};
