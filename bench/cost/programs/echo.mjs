// Sleeps as the storage thread does, and sends each message back.
import { receiveMessageOnPort, workerData } from "node:worker_threads";

const { port, counter } = workerData;
for (;;) {
  const seen = Atomics.load(counter, 0);
  for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
    if (next.message === "end") process.exit();
    port.postMessage(next.message);
  }
  Atomics.wait(counter, 0, seen);
}
