import { setMaxListeners } from "node:events";

/** A controller whose signal any number of waits may listen to: Node warns at the eleventh otherwise. */
export function sharedController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

/** What `promise` gives, unless `signal` aborts first: then rejects with its reason, and the promise is forgotten. */
export function unlessAborted<T>(promise: PromiseLike<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return Promise.resolve(promise);
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    const forget = (): void => signal.removeEventListener("abort", abort);
    Promise.resolve(promise).then(resolve, reject).finally(forget);
  });
}

/** Runs `use` with a signal that aborts as soon as one of the two does. (`AbortSignal.any` leaks on Node 20.) */
export async function withEither<T>(
  first: AbortSignal,
  second: AbortSignal | undefined,
  use: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  if (second === undefined) return use(first);
  const either = new AbortController();
  const unfollow = [first, second].map((signal) => follow(signal, either));
  try {
    return await use(either.signal);
  } finally {
    for (const stop of unfollow) stop();
  }
}

function follow(signal: AbortSignal, follower: AbortController): () => void {
  const abort = (): void => follower.abort(signal.reason);
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort);
  return () => signal.removeEventListener("abort", abort);
}
