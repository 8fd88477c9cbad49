import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** A process of `programs/`. It ends by itself, or when it is dismissed, or when this process is gone. */
export class Program {
  #name;
  #child;
  #ended;
  #messages = [];
  #wake = () => {};

  constructor(name, input, execArgv = []) {
    this.#name = name;
    const file = fileURLToPath(new URL(`../programs/${name}.mjs`, import.meta.url));
    // Standard output is for figures.
    const stdio = ["ignore", "ignore", "inherit", "ipc"];
    this.#child = fork(file, [JSON.stringify(input)], { stdio, execArgv, serialization: "advanced" });
    this.#ended = once(this.#child, "exit");
    this.#child.on("message", (message) => {
      this.#messages.push(message);
      this.#wake();
    });
    // Unlike the exit, this comes after the last message.
    this.#child.on("disconnect", () => this.#wake());
  }

  /** The next thing that it says. */
  async hear() {
    while (this.#messages.length === 0) {
      if (!this.#child.connected) throw new Error(`The program ${this.#name} ended early.`);
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.#messages.shift();
  }

  /** Lets it finish, and waits for its end. */
  async dismiss() {
    if (this.#child.connected) this.#child.disconnect();
    const [code, signal] = await this.#ended;
    if (code !== 0) throw new Error(`The program ${this.#name} failed (${signal ?? `exit code ${code}`}).`);
  }
}

/** Runs a program that says one thing and ends. */
export async function ask(name, input, execArgv) {
  const program = new Program(name, input, execArgv);
  const answer = await program.hear();
  await program.dismiss();
  return answer;
}
