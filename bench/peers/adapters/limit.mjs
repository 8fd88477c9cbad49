/** Not a queue: the least that SQLite needs for the same rows. It knows no ids, so nobody checks them. */
export const limit = {
  name: "limit",
  title: "the raw limit of SQLite",
  modes: [{}, { name: "fsync", fsync: true }],
  manyProcesses: false,
  anonymous: true,
  settings:
    "a loop on one thread over localqueue's tables, with as many jobs in a transaction as others have calls in flight",

  async open({ mode, place }) {
    const { SimpleQueue } = await import("../../../dist/index.js");
    const { Limit } = await import("../../cost/support/limit.mjs");
    const queue = new SimpleQueue(place.directory);
    await queue.stats();
    await queue.close();
    const file = new Limit(place.directory, { fsync: mode.fsync === true });
    const putTogether = (list) => file.put(Buffer.from(JSON.stringify(list[0])), list.length);
    return {
      putTogether,
      putMany: putTogether,
      async work(slots, handle, total) {
        const loop = async () => {
          for (let done = 0; done < total; done += slots) {
            let n = done;
            file.turn(Math.min(slots, total - done), (bytes) => {
              JSON.parse(bytes.toString());
              handle({ n: n++ });
            });
            if (done % 1_000 === 0) await new Promise(setImmediate);
          }
        };
        const ended = new Promise((resolve) => setImmediate(resolve)).then(loop);
        return { stop: () => ended };
      },
      close: () => file.close(),
    };
  },
};
