import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { onTestFinished } from "vitest";

export interface ScriptOptions {
  /** The built package that it imports: default the one of this repository. */
  readonly dist?: URL;
  readonly nodeOptions?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
}

/** How a process ended, and what it printed until then. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
  readonly errors: string;
  readonly tookMs: number;
}

/** A program in a process of its own. It finds `open`, `entry`, `print` (JSON, a line each) and `lines` (of its input) ready. */
export class Script {
  readonly child: ChildProcess;
  readonly #ended: Promise<Ended>;
  #output = "";
  #errors = "";

  constructor(directory: string, body: string, options: ScriptOptions = {}) {
    const { dist = new URL("../../dist/", import.meta.url), nodeOptions = [], env = {} } = options;
    const source = `
      import { writeSync } from "node:fs";
      import { createInterface } from "node:readline/promises";
      import { setTimeout as sleep } from "node:timers/promises";
      import { openStorage } from ${JSON.stringify(new URL("storage/location.js", dist).href)};
      const directory = ${JSON.stringify(directory)};
      const open = (queue = "default") => openStorage(directory, { queue, fsync: undefined });
      const entry = (payload) => ({ payload, jobId: undefined, delayMs: 0, maxAttempts: 4 });
      const lines = () => createInterface(process.stdin);
      const print = (value) => writeSync(1, JSON.stringify(value) + "\\n");
      ${body}`;
    const started = performance.now();
    const child = spawn(process.execPath, [...nodeOptions, "--input-type=module", "--eval", source], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    this.child = child;
    child.stdout.on("data", (text) => {
      this.#output += text;
    });
    child.stderr.on("data", (text) => {
      this.#errors += text;
    });
    this.#ended = once(child, "close").then(([code, signal]) => ({
      code,
      signal,
      output: this.#output,
      errors: this.#errors,
      tookMs: performance.now() - started,
    }));
    onTestFinished(async () => {
      child.kill("SIGKILL");
      await this.#ended;
    });
  }

  /** What it has printed so far. */
  get printed(): unknown[] {
    const lines = this.#output.split("\n").slice(0, -1);
    return lines.map((line) => JSON.parse(line));
  }

  /** Gives it a line of input. */
  tell(line: string): void {
    this.child.stdin?.write(`${line}\n`);
  }

  ended(): Promise<Ended> {
    return this.#ended;
  }
}
