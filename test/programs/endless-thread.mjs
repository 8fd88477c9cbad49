// A thread that puts until it is terminated.
import { parentPort, workerData } from "node:worker_threads";
import { SimpleQueue } from "localqueue";

const queue = new SimpleQueue(workerData.location);
for (let n = 0; ; n++) {
  const ids = await Promise.all(Array.from({ length: 20 }, () => queue.put(n).then(({ id }) => id)));
  parentPort.postMessage(ids);
}
