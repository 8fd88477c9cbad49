import { SimpleQueue, type SimpleQueueOptions } from "localqueue";
import { onTestFinished } from "vitest";
import { tempDirectory } from "./temp.ts";

export interface TestQueueOptions<T> extends SimpleQueueOptions<T> {
  /** Default: one of the test's own. */
  readonly directory?: string;
}

/** A queue that is closed when the test is over. */
export function openQueue<T = unknown>({
  directory = tempDirectory(),
  ...options
}: TestQueueOptions<T> = {}): SimpleQueue<T> {
  const queue = new SimpleQueue<T>(directory, options);
  onTestFinished(() => queue.close());
  return queue;
}
