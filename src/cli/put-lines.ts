import type { SimpleQueue } from "../index.ts";
import { explain, Failure } from "./failures.ts";
import { linesOf } from "./json-lines.ts";
import { tell } from "./output.ts";
import { Progress } from "./progress.ts";
import { type Item, type ItemMaker, PutBatches, type PutReport } from "./put-batches.ts";
import { onFirstSignal } from "./signals.ts";
import { jobs } from "./wording.ts";

/** Puts a job for each line of standard input. What goes wrong is told, with what had been put by then. */
export async function putLines(
  queue: SimpleQueue<string>,
  make: ItemMaker,
): Promise<{ readonly report: PutReport; readonly isComplete: boolean }> {
  const progress = new Progress(process.stderr);
  const batches = new PutBatches(queue, () => progress.show(batches.report.put + batches.report.known));
  const interrupt = new AbortController();
  const forgetSignals = onFirstSignal(() => {
    interrupt.abort(new Failure("Interrupted."));
    process.stdin.destroy(); // ends the wait for more input
  });
  try {
    await readInto(batches, make, interrupt.signal);
    progress.clear();
    return { report: batches.report, isComplete: true };
  } catch (error) {
    progress.clear();
    const explanation = explain(error);
    if (explanation === undefined) throw error;
    const { report } = batches;
    tell(`${explanation.text} ${jobs(report.put)} had been put by then.`);
    return { report, isComplete: false };
  } finally {
    process.stdin.destroy(); // else what nobody reads any more would keep the process alive
    forgetSignals();
  }
}

async function readInto(batches: PutBatches, make: ItemMaker, signal: AbortSignal): Promise<void> {
  try {
    for await (const { firstNumber, texts } of linesOf(process.stdin)) {
      for (const [index, text] of texts.entries()) {
        if (text === "") continue;
        batches.add(itemOf(firstNumber + index, text, make));
        if (batches.isFull) await batches.flush();
      }
      signal.throwIfAborted();
      batches.send(); // the input may pause now
    }
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    await batches.end();
  }
}

function itemOf(number: number, text: string, make: ItemMaker): Item {
  try {
    return make(text);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    throw new Failure(`Line ${number} ${error.message}.`, { cause: error });
  }
}
