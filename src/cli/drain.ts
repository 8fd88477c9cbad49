import type { SimpleQueue, Worker } from "../index.ts";

const LOOK_EVERY_MS = 500;

/**
 * Calls `drained` once nothing is left in the queue: looks when a job was settled and none runs here, and now and then,
 * because other workers settle, too. The function that is returned ends the watch.
 */
export function watchForEnd(
  queue: SimpleQueue<Uint8Array>,
  worker: Worker<Uint8Array>,
  { isIdle, drained }: { readonly isIdle: () => boolean; readonly drained: () => void },
): () => void {
  let isLooking = false;
  const look = async (): Promise<void> => {
    if (isLooking || !isIdle()) return;
    isLooking = true;
    try {
      const { ready, processing } = await queue.stats();
      if (ready + processing === 0) drained();
    } catch {
      // The worker meets the same fault, and waits it out or ends.
    }
    isLooking = false;
  };
  const timer = setInterval(() => void look(), LOOK_EVERY_MS);
  for (const event of ["job:acked", "job:retried", "job:failed"] as const) worker.on(event, look);
  void look();
  return () => clearInterval(timer);
}
