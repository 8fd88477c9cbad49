import { SimpleQueue } from "../../../dist/index.js";
import { withDirectory } from "./directory.mjs";

/** Lends a queue to `work` and closes it. */
export async function withQueue(directory, options, work) {
  const queue = new SimpleQueue(directory, options);
  try {
    return await work(queue);
  } finally {
    await queue.close();
  }
}

/** The same in a new directory. Reading the stats opens the file, so that the opening is in nobody's figures. */
export function withNewQueue(options, work) {
  return withDirectory((directory) =>
    withQueue(directory, options, async (queue) => {
      await queue.stats();
      return work(queue, directory);
    }),
  );
}

/** Runs `lane` so many times at once, each again and again as long as `more()` says so. */
export async function inLanes(lanes, more, lane) {
  const run = async () => {
    while (more()) await lane();
  };
  await Promise.all(Array.from({ length: lanes }, run));
}
