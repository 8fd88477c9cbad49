import { SimpleQueue } from "localqueue";
import { expect, onTestFinished } from "vitest";
import { faultsOf } from "../../support/inspect.ts";
import { type RemoteJob, RemoteQueue } from "../../support/remote-queue.ts";
import { tempDirectory } from "../../support/temp.ts";
import { type PythonJob, PythonQueue } from "./python.ts";

/** What both languages can be told in the same words: milliseconds, deliveries counted from 1. */
export interface Side {
  readonly errors: { readonly lost: object; readonly empty: object; readonly full: object; readonly unknown: object };
  put(data: unknown, options?: { jobId?: string; waitMs?: number }): Promise<number>;
  putMany(items: readonly { data: unknown; jobId?: string }[]): Promise<number[]>;
  get(waitMs?: number): Promise<HeldJob>;
  ack(job: Held): Promise<void>;
  nack(job: Held, options?: { delayMs?: number; lastError?: string }): Promise<void>;
  fail(job: Held, lastError?: string): Promise<void>;
  extend(job: Held, ms: number): Promise<void>;
  reclaim(): Promise<number>;
  retryFailed(id: number): Promise<void>;
  purge(olderThanMs: number, includeFailed?: boolean): Promise<number>;
  stats(): Promise<{ ready: number; processing: number; acked: number; failed: number }>;
  failed(): Promise<DeadLetter[]>;
  /** Kills the process. */
  kill(): Promise<void>;
}

interface Held {
  readonly id: number;
  readonly receipt: string;
}

interface HeldJob extends Held {
  readonly data: unknown;
  readonly attempt: number;
}

interface DeadLetter {
  readonly id: number;
  readonly data: unknown;
  readonly attempts: number;
  readonly reason: string;
  readonly lastError: string | undefined;
}

export interface SideOptions {
  readonly name?: string;
  readonly leaseMs?: number;
  readonly maxRetries?: number;
  readonly maxPendingJobs?: number;
}

export type Language = "Python" | "Node.js";

/** Who begins, and who goes on. */
export const DIRECTIONS: readonly (readonly [Language, Language])[] = [
  ["Python", "Node.js"],
  ["Node.js", "Python"],
];

/** A queue in a process of that language. */
export function openSide(language: Language, directory: string, options: SideOptions = {}): Side {
  return language === "Python" ? new PythonSide(directory, options) : new NodeSide(directory, options);
}

/** A directory for both. When the test is over, the file must be sound, and the counts those of the rows. */
export function sharedDirectory(): string {
  const directory = tempDirectory();
  onTestFinished(async () => {
    // Until we look, the counts need not know what Python has just begun to write.
    const queue = new SimpleQueue(directory);
    await queue.stats();
    await queue.close();
    expect(faultsOf(directory)).toEqual([]);
  });
  return directory;
}

class PythonSide implements Side {
  readonly errors = {
    lost: { name: "LeaseExpired" },
    empty: { name: "Empty" },
    full: { name: "Full" },
    unknown: { message: "job not found" },
  };
  readonly #queue: PythonQueue;

  constructor(directory: string, { name, leaseMs, maxRetries, maxPendingJobs }: SideOptions) {
    this.#queue = new PythonQueue(directory, {
      ...(name !== undefined && { name }),
      ...(leaseMs !== undefined && { lease_seconds: leaseMs / 1000 }),
      ...(maxRetries !== undefined && { max_retries: maxRetries }),
      ...(maxPendingJobs !== undefined && { max_pending_jobs: maxPendingJobs }),
    });
  }

  put(data: unknown, { jobId, waitMs }: { jobId?: string; waitMs?: number } = {}): Promise<number> {
    return this.#queue.put(data, {
      ...(jobId !== undefined && { job_id: jobId }),
      ...(waitMs === 0 && { block: false }),
      ...(waitMs !== undefined && waitMs > 0 && { timeout: waitMs / 1000 }),
    });
  }

  putMany(items: readonly { data: unknown; jobId?: string }[]): Promise<number[]> {
    return this.#queue.call(
      "put_many",
      items.map(({ data, jobId }) => ({ data, job_id: jobId })),
    );
  }

  async get(waitMs = 10_000): Promise<HeldJob> {
    const job: PythonJob = await this.#queue.get({ timeout: waitMs / 1000 });
    return { id: job.id, receipt: job.receipt, data: JSON.parse(job.text), attempt: job.attempts + 1 };
  }

  ack(job: Held): Promise<void> {
    return this.#queue.call("ack", job);
  }

  nack(job: Held, { delayMs = 0, lastError }: { delayMs?: number; lastError?: string } = {}): Promise<void> {
    return this.#queue.call("nack", job, { delay: delayMs / 1000, last_error: lastError });
  }

  fail(job: Held, lastError?: string): Promise<void> {
    return this.#queue.call("fail", job, lastError ?? null);
  }

  async extend(job: Held, ms: number): Promise<void> {
    await this.#queue.call("extend", job, ms / 1000);
  }

  reclaim(): Promise<number> {
    return this.#queue.call("reclaim");
  }

  retryFailed(id: number): Promise<void> {
    return this.#queue.call("retry_failed", id);
  }

  purge(olderThanMs: number, includeFailed = false): Promise<number> {
    return this.#queue.call("purge", olderThanMs / 1000, { include_failed: includeFailed });
  }

  stats(): Promise<{ ready: number; processing: number; acked: number; failed: number }> {
    return this.#queue.stats();
  }

  async failed(): Promise<DeadLetter[]> {
    const letters = await this.#queue.listFailed();
    return letters.map(({ id, text, attempts, reason, last_error }) => {
      return { id, data: JSON.parse(text), attempts, reason, lastError: last_error ?? undefined };
    });
  }

  kill(): Promise<void> {
    return this.#queue.kill();
  }
}

class NodeSide implements Side {
  readonly errors = {
    lost: { code: "LEASE_EXPIRED" },
    empty: { code: "EMPTY" },
    full: { code: "FULL" },
    unknown: { code: "NOT_FOUND" },
  };
  readonly #queue: RemoteQueue;

  constructor(directory: string, options: SideOptions) {
    this.#queue = new RemoteQueue(directory, options);
  }

  async put(data: unknown, { jobId, waitMs }: { jobId?: string; waitMs?: number } = {}): Promise<number> {
    return (await this.#queue.call<{ id: number }>("put", data, { jobId, timeoutMs: waitMs })).id;
  }

  async putMany(items: readonly { data: unknown; jobId?: string }[]): Promise<number[]> {
    return (await this.#queue.call<{ id: number }[]>("putMany", items)).map(({ id }) => id);
  }

  get(waitMs = 10_000): Promise<HeldJob> {
    return this.#queue.get({ timeoutMs: waitMs }) as Promise<RemoteJob>;
  }

  ack(job: Held): Promise<void> {
    return this.#queue.call("ack", job);
  }

  nack(job: Held, options: { delayMs?: number; lastError?: string } = {}): Promise<void> {
    return this.#queue.call("nack", job, options);
  }

  fail(job: Held, lastError?: string): Promise<void> {
    return this.#queue.call("fail", job, { lastError });
  }

  extend(job: Held, ms: number): Promise<void> {
    return this.#queue.call("extendLease", job, ms);
  }

  reclaim(): Promise<number> {
    return this.#queue.call("reclaimExpiredLeases");
  }

  retryFailed(id: number): Promise<void> {
    return this.#queue.call("retryFailed", id);
  }

  purge(olderThanMs: number, includeFailed = false): Promise<number> {
    return this.#queue.call("purge", { olderThanMs, includeFailed });
  }

  stats(): Promise<{ ready: number; processing: number; acked: number; failed: number }> {
    return this.#queue.call("stats");
  }

  failed(): Promise<DeadLetter[]> {
    return this.#queue.call("listFailed");
  }

  kill(): Promise<void> {
    return this.#queue.kill();
  }
}
