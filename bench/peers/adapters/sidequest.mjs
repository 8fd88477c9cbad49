import path from "node:path";

export const sidequest = {
  name: "sidequest",
  title: "sidequest on SQLite",
  package: "sidequest",
  modes: [{}],
  manyProcesses: true,
  settings: "no fork, inline runner, polls every 10 ms (default 100 ms)",

  async open({ place }) {
    const { Sidequest } = await import("sidequest");
    const { BenchJob, tell } = await import("./sidequest-job.mjs");
    const config = {
      backend: { driver: "@sidequest/sqlite-backend", config: path.join(place.directory, "queue.db") },
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
      close() {},
    };
  },
};
