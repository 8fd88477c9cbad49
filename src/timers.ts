import { performance } from "node:perf_hooks";
import * as timers from "node:timers";
import { onAbort } from "./abort.ts";

/** Captured when the package is loaded: a test framework that fakes time later must not stop a queue. */
export const setTimeout: typeof timers.setTimeout = timers.setTimeout;
export const clearTimeout: typeof timers.clearTimeout = timers.clearTimeout;
export const setInterval: typeof timers.setInterval = timers.setInterval;
export const clearInterval: typeof timers.clearInterval = timers.clearInterval;
export const setImmediate: typeof timers.setImmediate = timers.setImmediate;
export const queueMicrotask: typeof globalThis.queueMicrotask = globalThis.queueMicrotask;

/** Milliseconds that never jump. Only differences mean anything. */
export const monotonicNow: () => number = performance.now.bind(performance);

/** When this thread's `monotonicNow` was 0, in milliseconds since the epoch. */
export function timeOrigin(): number {
  return performance.timeOrigin;
}

/** Resolves after `ms`, or as soon as `signal` aborts; never rejects. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = (): void => {
      clearTimeout(timer);
      forget();
      resolve();
    };
    const timer = setTimeout(end, ms);
    const forget = onAbort(signal, end);
  });
}

/** Whether `promise` settles within `ms`. */
export async function settlesWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, ms, false);
  });
  const inTime = promise.then(
    () => true,
    () => true,
  );
  try {
    return await Promise.race([inTime, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Starts a time-out; the function says how much of it is left. No time-out, nothing left to say. */
export function countdown(timeoutMs: number | undefined): () => number | undefined {
  if (timeoutMs === undefined) return () => undefined;
  const end = monotonicNow() + timeoutMs;
  return () => Math.max(0, end - monotonicNow());
}
