import { QueueClosedError, type SimpleQueue } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { Failure } from "./failures.ts";
import { type Part, whileShown } from "./progress.ts";
import { inspect } from "./queue-access.ts";
import { onFirstSignal } from "./signals.ts";

type Task<T> = (queue: SimpleQueue<Uint8Array>, onProgress: (part: Part) => void) => Promise<T>;

/** Does something with a queue that may take long, and is shown; a signal ends it, and leaves nothing half done. */
export function runLong<T>(args: Arguments, what: string, task: Task<T>): Promise<T> {
  return inspect(args, async (queue) => {
    const forgetSignals = onFirstSignal(() => void queue.close());
    try {
      return await whileShown(what, (onProgress) => task(queue, onProgress));
    } catch (error) {
      if (error instanceof QueueClosedError) throw new Failure("Interrupted.", { cause: error });
      throw error;
    } finally {
      forgetSignals();
    }
  });
}
