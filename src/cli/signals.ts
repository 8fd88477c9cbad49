const STOPPING: readonly NodeJS.Signals[] = ["SIGINT", "SIGTERM", "SIGHUP"];

/** One Ctrl-C can arrive twice: from the terminal, and from an `npx` or `npm run` that passes it on. */
const ONE_PRESS_MS = 500;

/**
 * Calls `first` at the first signal that asks the process to stop; the next one ends it at once, with exit code 1.
 * The function that is returned leaves the signals to Node again.
 */
export function onFirstSignal(first: () => void): () => void {
  let last: { readonly signal: NodeJS.Signals; readonly at: number } | undefined;
  const listener = (signal: NodeJS.Signals): void => {
    const at = performance.now();
    if (last === undefined) {
      last = { signal, at };
      first();
    } else if (signal !== last.signal || at - last.at > ONE_PRESS_MS) process.exit(1);
  };
  for (const signal of STOPPING) process.on(signal, listener);
  return () => {
    for (const signal of STOPPING) process.off(signal, listener);
  };
}
