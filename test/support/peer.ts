import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Enqueued, Lease, PutOptions, QueueStats, SimpleQueueOptions } from "localqueue";
import { onTestFinished } from "vitest";

const program = fileURLToPath(new URL("../programs/peer.mjs", import.meta.url));

interface Answer {
  readonly call: number;
  readonly value?: unknown;
  readonly code?: string;
}

export interface PeerJob extends Lease {
  readonly data: unknown;
  readonly attempt: number;
}

/** A queue in a process of its own. A call that fails there rejects with an error that has the code of that one. */
export class Peer {
  readonly #child: ChildProcess;
  #calls = 0;

  constructor(directory: string, options: SimpleQueueOptions<unknown> = {}) {
    this.#child = fork(program, [directory, JSON.stringify(options)], { serialization: "advanced" });
    this.#child.setMaxListeners(0);
    onTestFinished(() => this.kill());
  }

  put(data: unknown, options?: PutOptions): Promise<Enqueued> {
    return this.#ask("put", data, options);
  }

  get(options?: { timeoutMs: number }): Promise<PeerJob> {
    return this.#ask("get", options);
  }

  ack(job: Lease): Promise<void> {
    return this.#ask("ack", job);
  }

  stats(): Promise<QueueStats> {
    return this.#ask("stats");
  }

  drain(concurrency: number): Promise<unknown[]> {
    return this.#ask("drain", concurrency);
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill("SIGKILL");
    await once(this.#child, "exit");
  }

  #ask<T>(verb: string, ...args: unknown[]): Promise<T> {
    const call = ++this.#calls;
    return new Promise((resolve, reject) => {
      const receive = (answer: Answer): void => {
        if (answer.call !== call) return;
        this.#child.off("message", receive);
        if (answer.code === undefined) resolve(answer.value as T);
        else reject(Object.assign(new Error(`The peer failed: ${answer.code}`), { code: answer.code }));
      };
      this.#child.on("message", receive);
      this.#child.once("exit", () => reject(new Error("The peer has ended.")));
      this.#child.send({ call, verb, args });
    });
  }
}
