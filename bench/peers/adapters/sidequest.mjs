import fs from "node:fs";
import path from "node:path";

export const sidequest = {
  name: "sidequest",
  title: "sidequest on SQLite",
  package: "sidequest",
  modes: [{}],
  manyProcesses: true,
  settings:
    "no fork, inline runner, polls every 10 ms (default 100 ms); its file is put into WAL mode before, which its own migration tries in vain",

  async open({ place }) {
    const { Sidequest } = await import("sidequest");
    const { BenchJob, tell } = await import("./sidequest-job.mjs");
    const file = path.join(place.directory, "queue.db");
    if (!fs.existsSync(file)) await useWal(file);
    const config = {
      backend: { driver: "@sidequest/sqlite-backend", config: file },
      fork: false,
      runner: "inline",
      jobPollingInterval: 10,
      logger: { level: "error", json: false },
      gracefulShutdown: false,
    };
    await Sidequest.configure(config);
    return {
      put: (data) => Sidequest.build(BenchJob).enqueue(data),
      async work(slots, handle) {
        tell(handle);
        const queues = [{ name: "default", concurrency: slots }];
        await Sidequest.start({ ...config, queues, maxConcurrentJobs: slots, dashboard: { enabled: false } });
        return { stop: () => Sidequest.stop() };
      },
      async left() {
        const { waiting, claimed, running } = await Sidequest.job.count();
        return waiting + claimed + running;
      },
      durability: () => `journal_mode = ${journalMode(file)}, synchronous = NORMAL (its driver's default)`,
      close() {},
    };
  },
};

/** That is kept in the file. In a migration it has no effect: SQLite does not change the mode inside a transaction. */
async function useWal(file) {
  const { default: Database } = await import("better-sqlite3");
  const db = new Database(file);
  db.pragma("journal_mode = WAL");
  db.close();
}

/** Byte 18 of the file says it. */
const journalMode = (file) => (fs.readFileSync(file).at(18) === 2 ? "wal" : "delete");
