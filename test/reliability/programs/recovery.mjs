// Opens a file as whoever comes first after a crash does, and is killed so many milliseconds after it began with that,
// or with the n-th statement of that; without such a number it puts jobs until it is killed.
import { Worker } from "node:worker_threads";
import { SimpleQueue } from "localqueue";
import { Connection } from "../../../dist/storage/sqlite/connection.js";
import { input, say } from "../../programs/lines.mjs";
import { watchedDriver } from "../../programs/watched-driver.mjs";

/** A thread that kills the process so long after it was told to. */
const KILLER = `
  const { workerData: [signal, ms], parentPort } = require("node:worker_threads");
  parentPort.postMessage("ready");
  Atomics.wait(signal, 0, 0);
  for (const end = performance.now() + ms; performance.now() < end; );
  process.kill(process.pid, "SIGKILL");`;

async function startKiller() {
  const signal = new Int32Array(new SharedArrayBuffer(4));
  const killer = new Worker(KILLER, { eval: true, workerData: [signal, input.killAfterMs] });
  await new Promise((resolve) => killer.once("message", resolve));
  return () => {
    Atomics.store(signal, 0, 1);
    Atomics.notify(signal, 0);
  };
}

function open(strike) {
  let [executed, begunAt] = [0, 0];
  const begin = () => {
    begunAt = performance.now();
    strike();
  };
  const driver = watchedDriver((sql, execute) => {
    say("executes", { sql });
    if (++executed === input.statement) begin();
    return execute();
  });
  say("opening");
  if (input.statement === 0) begin();
  new Connection({ directory: input.location, driver });
  say("open", { ms: performance.now() - begunAt });
  // Without closing it, which would tidy up what the next one is to find.
  process.kill(process.pid, "SIGKILL");
}

if (input.killAfterMs !== undefined) {
  open(await startKiller());
} else {
  const queue = new SimpleQueue(input.location);
  for (let n = 0; ; n++) {
    const payload = `${process.pid}.${n} ${"x".repeat(input.bytes)}`;
    const { id } = await queue.put(payload);
    say("put", { id, start: payload.slice(0, 16) });
  }
}
