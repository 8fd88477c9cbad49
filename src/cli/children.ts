import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";

/** How a child process ended: by itself with a code, or by a signal. */
export interface ChildEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface ChildTask {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** What it finds on its standard input. */
  readonly input: Uint8Array;
  /** Has the child terminated; `killAfterMs` later, if it still runs then, it is killed. */
  readonly signal: AbortSignal;
  readonly killAfterMs: () => number;
}

/** The processes that run jobs. Each leads a group of its own, so that the Ctrl-C of a terminal does not reach it. */
export class Children {
  readonly #running = new Set<ChildProcess>();

  get count(): number {
    return this.#running.size;
  }

  /** Resolves when the child has ended. Rejects if it could not be started. */
  async run({ program, args, env, input, signal, killAfterMs }: ChildTask): Promise<ChildEnd> {
    const child = spawn(program, args, { env, detached: true, stdio: ["pipe", "inherit", "inherit"] });
    const ended = once(child, "exit"); // rejects at "error"
    let killTimer: NodeJS.Timeout | undefined;
    const terminate = (): void => {
      signalGroup(child, "SIGTERM");
      killTimer = setTimeout(() => signalGroup(child, "SIGKILL"), killAfterMs());
    };
    this.#running.add(child);
    try {
      child.stdin.on("error", () => {}); // it need not read its input
      child.stdin.end(input);
      if (signal.aborted) terminate();
      signal.addEventListener("abort", terminate);
      const [code, killedBy] = await ended;
      return { code, signal: killedBy };
    } finally {
      this.#running.delete(child);
      signal.removeEventListener("abort", terminate);
      clearTimeout(killTimer);
    }
  }

  kill(): void {
    for (const child of this.#running) signalGroup(child, "SIGKILL");
  }
}

/** Also reaches what the child has started itself. */
function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return; // it could not be started
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error; // it has ended just now
  }
}
