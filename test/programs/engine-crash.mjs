// An engine without its thread, whose process is killed at a chosen moment of the last command that it is given.
import { Connection } from "../../dist/storage/sqlite/connection.js";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";
import { Engine } from "../../dist/storage/sqlite/engine.js";
import { cellTime, monotonicMs, SIGNAL, SIGNALS } from "../../dist/storage/sqlite/protocol.js";
import { input, say } from "./lines.mjs";

const { location, moment } = input;
let armed = false;
const dieAt = (here) => {
  if (armed && here === moment) process.kill(process.pid, "SIGKILL");
};

const driver = loadDriver();
let statements = 0;
function open(file) {
  const db = driver.open(file);
  return {
    get inTransaction() {
      return db.inTransaction;
    },
    exec: (sql) => {
      if (sql === "COMMIT") dieAt("before COMMIT");
      db.exec(sql);
    },
    prepare: (sql) => {
      const statement = db.prepare(sql);
      const isPut = sql.startsWith("INSERT INTO messages");
      return {
        run: (parameters) => {
          if (isPut && ++statements > input.command.copies / 2) dieAt("halfway");
          return statement.run(parameters);
        },
        get: (parameters) => statement.get(parameters),
        all: (parameters) => statement.all(parameters),
      };
    },
    close: () => db.close(),
  };
}

const connection = new Connection({ directory: location, driver: { ...driver, open: (file) => open(file) } });
const signals = new Int32Array(new SharedArrayBuffer(SIGNALS * 4));
let answered = false;
const engine = new Engine({
  connection,
  signals,
  clock: Date.now,
  monotonic: monotonicMs,
  post: (message) => {
    if (message.answers.length === 0) return;
    dieAt("before the answer");
    say("answered");
    answered = true;
  },
});

armed = true;
engine.receive({ kind: "batch", commands: [command(input.command)] });
while (!answered) {
  Atomics.store(signals, SIGNAL.tick, cellTime(monotonicMs()));
  engine.step();
}

function command({ op, entry, copies = 1, ...rest }) {
  const base = { id: 1, origin: { session: 1, queue: "default", fsync: false }, lockMs: 5_000, op, ...rest };
  if (op !== "put") return base;
  const payload = new TextEncoder().encode("1");
  return { ...base, entries: Array.from({ length: copies }, () => ({ ...entry, payload })), bytes: copies };
}
