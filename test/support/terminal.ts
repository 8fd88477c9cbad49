import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { onTestFinished } from "vitest";
import { CLI } from "./cli.ts";
import { tempDirectory } from "./temp.ts";
import { until } from "./until.ts";

/** `localqueue` as it is typed into a shell. */
export const TYPED: string = `"${process.execPath}" "${CLI}"`;

/** A line of shell that runs at a pseudo terminal of 80 columns and 24 rows. */
export class Terminal {
  /** All that it has shown, with ␛ for the escape character. */
  shown = "";
  readonly ended: Promise<string>;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #nameFile = path.join(tempDirectory(), "tty");

  constructor(line: string, env: NodeJS.ProcessEnv = {}) {
    const whole = `stty cols 80 rows 24 -echo; tty > '${this.#nameFile}'; ${line}`;
    this.#child = spawn("script", ["-qec", whole, "/dev/null"], {
      // Not the environment of the tests: CI, NO_COLOR and FORCE_COLOR decide what Node takes a terminal for, and
      // SHELL is who sees Ctrl-C beside the command.
      env: { PATH: process.env["PATH"], SHELL: "/bin/bash", TERM: "xterm", ...env },
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.#child.stdout.setEncoding("utf8").on("data", (text: string) => {
      this.shown += text.replaceAll("\x1b", "␛");
    });
    this.ended = once(this.#child, "close").then(() => this.shown.replaceAll("\r\n", "\n"));
    onTestFinished(async () => {
      this.#child.kill("SIGKILL");
      await this.ended;
    });
  }

  async shows(text: string): Promise<void> {
    await until(() => this.shown.includes(text) || this.#child.exitCode !== null);
    if (!this.shown.includes(text)) throw new Error(`It has not shown "${text}": ${this.shown}`);
  }

  press(keys: string): void {
    this.#child.stdin.write(keys);
  }

  async resize(columns: number, rows: number): Promise<void> {
    await until(() => existsSync(this.#nameFile));
    const device = readFileSync(this.#nameFile, "utf8").trim();
    execFileSync("stty", ["-F", device, "cols", `${columns}`, "rows", `${rows}`]);
  }
}

/** Runs a line at a terminal to its end; resolves to all that it showed. */
export function atTerminal(line: string, env?: NodeJS.ProcessEnv): Promise<string> {
  return new Terminal(line, env).ended;
}
