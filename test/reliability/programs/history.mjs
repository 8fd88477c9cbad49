import { openSync, writeSync } from "node:fs";

/** The history of this process, see `support/history.ts`: on disk as soon as a call is made, whatever happens then. */
export class History {
  #file;
  #process;
  #seq = 0;

  constructor(file, name = String(process.pid)) {
    this.#file = openSync(file, "a");
    this.#process = name;
  }

  #append(entry) {
    const seq = ++this.#seq;
    const mono = Number(process.hrtime.bigint() / 1000n) / 1000;
    const line = JSON.stringify({ seq, process: this.#process, mono, wall: Date.now(), ...entry });
    writeSync(this.#file, `${line}\n`);
    return seq;
  }

  /**
   * Records the call, performs it, records what came of it: `resultOf` makes the result of what it resolves to, and
   * `certain` tells of an error whether nothing can have happened. Settles as the call does.
   */
  async record(call, perform, resultOf = () => ({}), certain = certainlyNothing) {
    const of = this.#append({ type: "invoke", call });
    try {
      const value = await perform();
      this.#append({ type: "ok", of, result: resultOf(value) });
      return value;
    } catch (error) {
      const code = error?.code === "LEASE_EXPIRED" ? "lost" : String(error?.code ?? error);
      this.#append({ type: certain(error) ? "fail" : "info", of, error: code });
      throw error;
    }
  }
}

/** Errors after which it is certain that nothing happened. */
function certainlyNothing(error) {
  return error?.outcome === "failed" || ["LEASE_EXPIRED", "NOT_FOUND", "FULL"].includes(error?.code);
}
