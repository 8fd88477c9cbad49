// What the time of one call consists of: the engine without its thread, and the way from thread to thread and back.
import { performance } from "node:perf_hooks";
import { MessageChannel, Worker } from "node:worker_threads";
import { withDirectory } from "./support/directory.mjs";
import { LoneEngine } from "./support/engine.mjs";
import { tellRatio, tellValue } from "./support/figures.mjs";
import { time } from "./support/format.mjs";
import { withLimit } from "./support/limit.mjs";
import { payloadBytes } from "./support/payload.mjs";
import { alternate, percentile } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const CALLS = sized(10_000, 100);
const WARM_UP = sized(5_000, 50);
const FILL = 1_000;

/** The median time of a call, in milliseconds. */
function timed(call) {
  for (let i = 0; i < WARM_UP; i++) call();
  const times = [];
  for (let i = 0; i < CALLS; i++) {
    const start = performance.now();
    call();
    times.push(performance.now() - start);
  }
  return percentile(times, 50);
}

function withEngine(work) {
  return withDirectory(async (directory) => {
    const engine = new LoneEngine(directory);
    try {
      return work(engine);
    } finally {
      engine.close();
    }
  });
}

const puts = await alternate(
  () => withEngine((engine) => timed(() => engine.put())),
  () => withLimit({}, (file) => timed(() => file.put(payloadBytes, 1))),
);
tellRatio("the engine alone, one put: time", undefined, puts, time);

const turns = await alternate(
  () =>
    withEngine((engine) => {
      for (let filled = 0; filled < CALLS + WARM_UP; filled += FILL) engine.put(FILL);
      engine.consume();
      let delivery;
      return timed(() => {
        delivery = engine.turn(delivery);
      });
    }),
  () =>
    withLimit({}, (file) => {
      for (let filled = 0; filled < CALLS + WARM_UP; filled += FILL) file.put(payloadBytes, FILL);
      return timed(() => file.turn(1, (bytes) => JSON.parse(bytes.toString())));
    }),
);
tellRatio("the engine alone, one ack and the next claim: time", undefined, turns, time);

const { port1, port2 } = new MessageChannel();
const counter = new Int32Array(new SharedArrayBuffer(4));
const post = (message) => {
  port1.postMessage(message);
  Atomics.add(counter, 0, 1);
  Atomics.notify(counter, 0);
};
const options = { workerData: { port: port2, counter }, transferList: [port2] };
const echo = new Worker(new URL("./programs/echo.mjs", import.meta.url), options);
let answered = () => {};
port1.on("message", () => answered());
const trips = [];
for (let i = 0; i < WARM_UP + CALLS; i++) {
  const start = performance.now();
  await new Promise((resolve) => {
    answered = resolve;
    post(i);
  });
  if (i >= WARM_UP) trips.push(performance.now() - start);
}
post("end");
await new Promise((resolve) => echo.once("exit", resolve));
port1.close();
const detail = `between two threads that sleep as ours do; 90 % within ${time(percentile(trips, 90))}`;
tellValue("an empty message there and back: p50", undefined, percentile(trips, 50), time, detail);
