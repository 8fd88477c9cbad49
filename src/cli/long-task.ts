import { QueueClosedError } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { Failure } from "./failures.ts";
import type { Inspect } from "./place.ts";
import { type Part, whileShown } from "./progress.ts";
import { onFirstSignal } from "./signals.ts";

type Task<Asked, T> = (asked: Asked, onProgress: (part: Part) => void) => Promise<T>;

/** Does something that may take long, and is shown; a signal ends it, and leaves nothing half done. */
export function runLong<Asked, T>(
  inspect: Inspect<Asked>,
  args: Arguments,
  what: string,
  task: Task<Asked, T>,
): Promise<T> {
  return inspect(args, async (asked, owner) => {
    const forgetSignals = onFirstSignal(() => void owner.close());
    try {
      return await whileShown(what, (onProgress) => task(asked, onProgress));
    } catch (error) {
      if (error instanceof QueueClosedError) throw new Failure("Interrupted.", { cause: error });
      throw error;
    } finally {
      forgetSignals();
    }
  });
}
