import { startPostgres } from "./postgres.mjs";
import { startRedis } from "./redis.mjs";

const START = { redis: startRedis, postgres: startPostgres };

/** The servers that some peers need: one for each kind and durability, started when first needed. */
export class Servers {
  #started = new Map();

  /** The server of a side, or nothing if it needs none. */
  of({ adapter, mode }) {
    const start = START[adapter.server];
    if (start === undefined) return undefined;
    const key = `${adapter.server} ${mode.fsync === true}`;
    if (!this.#started.has(key)) this.#started.set(key, start({ fsync: mode.fsync === true }));
    return this.#started.get(key);
  }

  async stop() {
    const started = [...this.#started.values()];
    this.#started.clear();
    for (const server of await Promise.allSettled(started)) await server.value?.stop();
  }
}
