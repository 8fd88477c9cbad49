import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { isOnPostgres } from "./location.ts";
import { until } from "./until.ts";

export const CLI: string = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

/** The location as it is to be typed: a shell takes the `?` of a URL for its own. */
export function typed(location: string): string {
  return isOnPostgres(location) ? `'${location}'` : location;
}

/** How a command ended, and what it printed. */
export interface CliResult {
  /** The exit code, or the signal that ended it. */
  readonly code: number | NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Whether it leads a process group, as what is started at a terminal does. */
  readonly detached?: boolean;
}

/** A `localqueue` command under way, with pipes for its input and output. Killed at the end of the test at the latest. */
export class Cli {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<CliResult>;
  stdout = "";
  stderr = "";
  hasEnded = false;

  constructor(args: readonly string[], { cwd, env, detached = false }: CliOptions = {}) {
    this.child = spawn(process.execPath, [CLI, ...args], {
      ...(cwd !== undefined && { cwd }),
      env: { ...process.env, ...env },
      detached,
      stdio: "pipe",
    });
    this.child.stdin.on("error", () => {}); // it may have ended
    this.child.stdout.setEncoding("utf8").on("data", (text: string) => {
      this.stdout += text;
    });
    this.child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.stderr += text;
    });
    this.ended = once(this.child, "close").then(([code, signal]) => {
      this.hasEnded = true;
      return { code: code ?? signal, stdout: this.stdout, stderr: this.stderr };
    });
    onTestFinished(async () => {
      if (!this.hasEnded) this.child.kill("SIGKILL");
      // What it has started may live on, and hold these pipes.
      this.child.stdout.destroy();
      this.child.stderr.destroy();
      await this.ended;
    });
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** Waits until it has printed `text` to its standard error. */
  async says(text: string): Promise<void> {
    await until(() => this.stderr.includes(text) || this.hasEnded);
    if (!this.stderr.includes(text)) throw new Error(`It ended without having said "${text}": ${this.stderr}`);
  }
}

/** Runs a command to its end, with `input` on its standard input. */
export function runCli(
  args: readonly string[],
  { input = "", ...options }: CliOptions & { readonly input?: string | Uint8Array } = {},
): Promise<CliResult> {
  const cli = new Cli(args, options);
  cli.child.stdin.end(input);
  return cli.ended;
}
