// Opens a queue and does a little of everything, but is killed right before its n-th statement that changes something.

import { cellTime } from "../../dist/storage/handler-cells.js";
import { Connection } from "../../dist/storage/sqlite/connection.js";
import { Engine } from "../../dist/storage/sqlite/engine.js";
import { SIGNAL, SIGNALS } from "../../dist/storage/sqlite/protocol.js";
import { monotonicMs } from "../../dist/storage/thread-clock.js";
import { input, say } from "./lines.mjs";
import { watchedDriver } from "./watched-driver.mjs";

let changes = 0;
function run(sql, execute) {
  const changesNothing = /^(PRAGMA|SELECT)/.test(sql);
  if (!changesNothing && ++changes === input.killAt) process.kill(process.pid, "SIGKILL");
  return execute();
}

const signals = new Int32Array(new SharedArrayBuffer(SIGNALS * 4));
Atomics.store(signals, SIGNAL.tick, cellTime(monotonicMs()));
let answer;
const engine = new Engine({
  connection: new Connection({ directory: input.location, driver: watchedDriver(run) }),
  signals,
  clock: Date.now,
  monotonic: monotonicMs,
  post: ({ answers }) => {
    for (const one of answers) {
      answer = one;
      say("answer", { to: one.id });
    }
  },
});

let commands = 0;
function ask(command) {
  const base = { id: ++commands, origin: { session: 1, queue: "default", fsync: false }, lockMs: 5_000 };
  engine.receive({ kind: "batch", commands: [{ ...base, ...command }] });
  for (answer = undefined; answer === undefined; ) engine.step();
  return answer;
}

const entry = (jobId = null) => ({ payload: new Uint8Array([49]), jobId, delayMs: 0, maxAttempts: 1 });
const settle = (lease, move) => ask({ op: "settle", lease, move });

ask({ op: "put", bytes: 1, entries: [entry("one")] });
ask({ op: "put", bytes: 3, entries: [entry("one"), entry("two"), entry("three")] });
const { claimed } = ask({ op: "claim", limit: 2, leaseMs: 3_600_000, waitMs: 0 });
settle(claimed[0], { event: "ack" });
settle(claimed[1], { event: "release" });
const [again] = ask({ op: "claim", limit: 1, leaseMs: 3_600_000, waitMs: 0 }).claimed;
settle(again, { event: "nack", delayMs: 0, lastError: "no", exhaustedReason: "retries_exhausted" });
const event = (jobId) => {
  const identity = { key: `key of ${jobId}`, fingerprint: "" };
  return { bytes: 2, events: [{ payload: "e", jobId, queues: ["default", "other"], identity, maxAttempts: 1 }] };
};
ask({ op: "dispatch", ...event("cause") });
const [parent] = ask({ op: "claim", limit: 1, leaseMs: 3_600_000, waitMs: 0 }).claimed;
ask({ op: "settle", lease: parent, move: { event: "ack" }, emit: event("effect") });
say("finished", { changes });
