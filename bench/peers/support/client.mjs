import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { endAtExit } from "./leftovers.mjs";

const file = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const SAY = 3;
const LONGEST_MS = 180_000;
const KEPT = 2_000;

const RUNTIMES = {
  node: () => [process.execPath, file("programs/client.mjs")],
  bun: () => [file("node_modules/@oven/bun-linux-x64/bin/bun"), file("programs/client.mjs")],
  python: () => [pythonOf(), file("programs/client.py")],
};

export function pythonOf() {
  return file("../../.interop/1.4.1/bin/python");
}

/** A process of a peer, see `programs/`. */
export class Client {
  /** How many jobs its worker handled, as far as it told. */
  handled = 0;
  #child;
  #answers = [];
  #stderr = "";
  #ended;
  #failure;
  #forget;

  constructor(side, place) {
    const { adapter, mode } = side;
    const [program, ...args] = RUNTIMES[adapter.runtime ?? "node"]();
    const input = JSON.stringify({ name: adapter.name, mode, place });
    this.directory = place.directory;
    const stdio = ["pipe", "ignore", "pipe", "pipe"];
    this.#child = spawn(program, [...args, input], { stdio, cwd: place.directory });
    this.#forget = endAtExit(() => this.#child.kill("SIGKILL"));
    this.#ended = once(this.#child, "close");
    this.#ended.then(
      () => this.#end(),
      () => this.#end(),
    );
    this.#child.stdin.on("error", () => {});
    this.#child.stderr.on("data", (text) => {
      this.#stderr = (this.#stderr + text).slice(-KEPT);
    });
    createInterface({ input: this.#child.stdio[SAY] }).on("line", (line) => this.#hear(JSON.parse(line)));
    /** Resolves when its queue is open. */
    this.opened = this.#answer("open");
    this.opened.catch(() => {});
  }

  get pid() {
    return this.#child.pid;
  }

  ask(command, input = {}) {
    this.#child.stdin.write(`${JSON.stringify({ command, ...input })}\n`);
    return this.#answer(command);
  }

  async close() {
    await this.ask("close");
    await this.#ended;
  }

  /** Throws if it ended, or said of its own accord that it failed. */
  assertRuns() {
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Resolves when it is gone. */
  kill() {
    this.#child.kill("SIGKILL");
    return this.#ended;
  }

  #answer(command) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.kill(), LONGEST_MS);
      this.#answers.push({
        command,
        resolve(value) {
          clearTimeout(timer);
          resolve(value);
        },
        reject(error) {
          clearTimeout(timer);
          reject(error);
        },
      });
    });
  }

  #hear({ ok, error, handled }) {
    if (handled !== undefined) this.handled = handled;
    else if (ok !== undefined) this.#answers.shift()?.resolve(ok);
    else this.#fail(error);
  }

  #end() {
    this.#forget();
    this.#fail("the process ended");
  }

  #fail(why) {
    const said = this.#stderr.trim();
    this.#failure ??= new Error(`${why}${said === "" ? "" : `\n${said}`}`);
    for (const { command, reject } of this.#answers.splice(0)) {
      reject(new Error(`failed at ${command}: ${this.#failure.message}`, { cause: this.#failure }));
    }
  }
}
