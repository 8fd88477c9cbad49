import { openSync, writeSync } from "node:fs";

/** What a process did, appended to a file as it happens: before it tries something, and when it knows the outcome. */
export class History {
  #file;

  constructor(path) {
    this.#file = openSync(path, "a");
  }

  invoke(op, about) {
    this.#write("invoke", op, about);
  }

  ok(op, about) {
    this.#write("ok", op, about);
  }

  /** Certainly not done. */
  refused(op, about) {
    this.#write("refused", op, about);
  }

  #write(type, op, about) {
    // The monotonic clock of Linux is the same in all processes.
    const us = Number(process.hrtime.bigint() / 1000n);
    writeSync(this.#file, `${JSON.stringify({ type, op, us, ms: Date.now(), ...about })}\n`);
  }
}
