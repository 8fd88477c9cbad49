import { SimpleQueue, type SimpleQueueOptions } from "localqueue";
import { onTestFinished } from "vitest";
import { tempLocation } from "./location.ts";

export interface TestQueueOptions<T> extends SimpleQueueOptions<T> {
  /** Default: one of the test's own. */
  readonly location?: string;
}

/** A queue that is closed when the test is over. */
export function openQueue<T = unknown>({
  location = tempLocation(),
  ...options
}: TestQueueOptions<T> = {}): SimpleQueue<T> {
  const queue = new SimpleQueue<T>(location, options);
  onTestFinished(() => queue.close());
  return queue;
}
