// An engine without its thread, whose process is killed at a chosen moment of the command that it is given, or of the
// renewal of a lease.

import { cellTime } from "../../dist/storage/handler-cells.js";
import { Connection } from "../../dist/storage/sqlite/connection.js";
import { Engine } from "../../dist/storage/sqlite/engine.js";
import { SIGNAL, SIGNALS } from "../../dist/storage/sqlite/protocol.js";
import { monotonicMs } from "../../dist/storage/thread-clock.js";
import { input, say } from "./lines.mjs";
import { watchedDriver } from "./watched-driver.mjs";

const { location, moment } = input;
let armed = false;
const dieAt = (here) => {
  if (armed && here === moment) process.kill(process.pid, "SIGKILL");
};

let statements = 0;
function run(sql, execute) {
  if (sql === "COMMIT") dieAt("before COMMIT");
  // A statement puts several.
  if (sql.startsWith("INSERT INTO messages") && ++statements === 100) dieAt("halfway");
  const result = execute();
  if (sql === "BEGIN IMMEDIATE") dieAt("after BEGIN");
  if (sql === "COMMIT") dieAt("after COMMIT");
  return result;
}

const connection = new Connection({ directory: location, driver: watchedDriver(run) });
const signals = new Int32Array(new SharedArrayBuffer(SIGNALS * 4));
let answered = false;
// The clock stands still, so that no batch is cut short because it takes long.
const now = Date.now();
const engine = new Engine({
  connection,
  signals,
  clock: () => now,
  monotonic: monotonicMs,
  post: (message) => {
    if (message.answers.length + message.news.length === 0) return;
    dieAt("before the answer");
    say("answered", { answer: message.answers[0] });
    answered = true;
  },
});

armed = true;
if (input.renew === undefined) engine.receive({ kind: "batch", commands: [command(input.command)] });
else engine.receive(consumerOf(input.renew));
while (!answered) {
  Atomics.store(signals, SIGNAL.tick, cellTime(monotonicMs()));
  engine.step();
}

function command({ op, entry, copies = 1, maxPending, ...rest }) {
  const base = {
    id: 1,
    origin: { session: 1, queue: "default", fsync: false, maxPending },
    lockMs: 5_000,
    op,
    ...rest,
  };
  if (op !== "put") return base;
  const payload = new TextEncoder().encode("1");
  return { ...base, entries: Array.from({ length: copies }, () => ({ ...entry, payload })), bytes: copies };
}

/** A consumer that handles a job: the first that its engine does is to renew the lease. */
function consumerOf({ lease, leaseMs }) {
  const cells = new SharedArrayBuffer(4);
  Atomics.store(new Int32Array(cells), 0, cellTime(monotonicMs()));
  const settings = { queue: "default", fsync: false, slots: 1, cells, leaseMs, heartbeatMs: leaseMs / 4, graceMs: 0 };
  return { kind: "consume", consumer: 1, held: [{ ...lease, slot: 0 }], settings };
}
