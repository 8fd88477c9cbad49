import type { SimpleQueue, Worker, WorkerEvents } from "localqueue";
import { onTestFinished } from "vitest";
import { until } from "./until.ts";

type Name = keyof WorkerEvents<unknown>;

/** What a worker told, in order. */
export type Told = [name: Name, ...about: unknown[]][];

/** Writes down the worker's events: the job's data, and what the event adds to it. */
export function listenTo<T>(worker: Worker<T>): Told {
  const told: Told = [];
  worker.on("job:acked", ({ job }) => told.push(["job:acked", job.data]));
  worker.on("job:retried", ({ job, error, delayMs }) => told.push(["job:retried", job.data, error, delayMs]));
  worker.on("job:failed", ({ job, error, reason }) => told.push(["job:failed", job.data, error, reason]));
  worker.on("lease:lost", ({ job }) => told.push(["lease:lost", job.data]));
  worker.on("error", ({ error }) => told.push(["error", error]));
  return told;
}

/** Runs a worker until the test is over, or until it is stopped. */
export function start(worker: Pick<Worker, "run" | "stop">): Promise<void> {
  const running = worker.run();
  running.catch(() => {}); // whoever cares awaits it
  onTestFinished(async () => {
    await worker.stop();
  });
  return running;
}

/** Resolves when no job of the queue is ready or running. */
export async function drained(queue: Pick<SimpleQueue, "stats">): Promise<void> {
  await until(async () => {
    const { ready, processing } = await queue.stats();
    return ready + processing === 0;
  });
}

/** A promise, and the functions that settle it. */
export interface Gate<T = void> {
  readonly passed: Promise<T>;
  readonly open: (value: T) => void;
  readonly fail: (reason: unknown) => void;
}

export function gate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => {};
  let fail: (reason: unknown) => void = () => {};
  const passed = new Promise<T>((resolve, reject) => {
    open = resolve;
    fail = reject;
  });
  return { passed, open, fail };
}

/** Process warnings of this package that are emitted during the test. */
export function collectWarnings(): (Error & { code?: string })[] {
  const warnings: (Error & { code?: string })[] = [];
  const note = (warning: Error): void => {
    if (warning.name === "LocalQueueWarning") warnings.push(warning);
  };
  process.on("warning", note);
  onTestFinished(() => void process.off("warning", note));
  return warnings;
}
