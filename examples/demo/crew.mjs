import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** The processes of the demo. None outlives it: they end when their parent lets go, or is gone. */
export class Crew {
  #children = new Map();
  #onFailure;

  /** `onFailure` is told of the first process that ends otherwise than it should. */
  constructor(onFailure) {
    this.#onFailure = onFailure;
  }

  /** Starts a program of this directory; `onMessage` gets what it says. */
  start(name, program, args, onMessage) {
    const child = fork(fileURLToPath(new URL(program, import.meta.url)), args);
    const ended = once(child, "exit").then(([code, signal]) => {
      this.#children.delete(name);
      if (code !== 0 && !child.killed)
        this.#onFailure(new Error(`${name} ended early (${signal ?? `exit code ${code}`})`));
    });
    child.on("message", onMessage);
    this.#children.set(name, { child, ended });
    return child.pid;
  }

  /** `kill -9`: the process gets no chance to clean up. */
  kill(name) {
    this.#children.get(name).child.kill("SIGKILL");
  }

  killAll() {
    for (const { child } of this.#children.values()) child.kill("SIGKILL");
  }

  /** Lets all processes finish what they are at, and waits for their end. */
  async dismiss() {
    const endings = [...this.#children.values()].map(({ child, ended }) => {
      if (child.connected) child.disconnect();
      return ended;
    });
    await Promise.all(endings);
  }
}
