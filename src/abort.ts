import { Slots } from "./slots.ts";

const listenersOf = new WeakMap<AbortSignal, Slots<() => void>>();

/**
 * Calls `listener` when `signal` aborts; the function that is returned ends that. Any number of waits may share a
 * signal: it gets one listener from us, where Node would warn at the eleventh.
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  let listeners = listenersOf.get(signal);
  if (listeners === undefined) {
    const all = new Slots<() => void>();
    signal.addEventListener("abort", () => all.list().forEach((each) => void each()), { once: true });
    listenersOf.set(signal, all);
    listeners = all;
  }
  const slot = listeners.add(listener);
  let listening = true;
  return () => {
    if (listening) listeners.delete(slot);
    listening = false;
  };
}

/** What `promise` gives, unless `signal` aborts first: then rejects with its reason, and the promise is forgotten. */
export function unlessAborted<T>(promise: PromiseLike<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return Promise.resolve(promise);
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    const forget = onAbort(signal, abort);
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
  const unfollow = [first, second].map((signal) => {
    if (signal.aborted) either.abort(signal.reason);
    return onAbort(signal, () => either.abort(signal.reason));
  });
  try {
    return await use(either.signal);
  } finally {
    for (const stop of unfollow) stop();
  }
}
