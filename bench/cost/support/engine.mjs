import { cellTime } from "../../../dist/storage/handler-cells.js";
import { Connection } from "../../../dist/storage/sqlite/connection.js";
import { loadDriver } from "../../../dist/storage/sqlite/driver.js";
import { Engine } from "../../../dist/storage/sqlite/engine.js";
import { SIGNAL, SIGNALS, WATCH } from "../../../dist/storage/sqlite/protocol.js";
import { monotonicMs } from "../../../dist/storage/thread-clock.js";
import { payloadBytes } from "./payload.mjs";

const ORIGIN = { origin: { session: 1, queue: "default", fsync: false, text: true }, lockMs: 30_000 };
const CONSUMER = 1;
/** A young engine leaves gaps for other writers, whom it may not have noticed yet. */
const YOUTH_MS = 1_500;

/** The storage thread's engine without its thread: asked and answered by calls. */
export class LoneEngine {
  #signals = new Int32Array(new SharedArrayBuffer(SIGNALS * 4));
  #engine;
  #answers = [];
  #commands = 0;

  constructor(directory) {
    Atomics.store(this.#signals, SIGNAL.watch, WATCH.armed);
    const connection = new Connection({ directory, driver: loadDriver() });
    const post = (message) => this.#answers.push(...(message.answers ?? []));
    const clocks = { clock: Date.now, monotonic: monotonicMs };
    this.#engine = new Engine({ connection, post, signals: this.#signals, ...clocks });
    const end = monotonicMs() + YOUTH_MS;
    while (monotonicMs() < end) this.#engine.step();
  }

  put(jobs = 1) {
    const payload = payloadBytes.toString();
    const job = { payload, jobId: null, delayMs: 0, maxAttempts: 4 };
    const entries = Array.from({ length: jobs }, () => job);
    return this.#ask([{ op: "put", ...ORIGIN, bytes: jobs * payload.length, entries }]);
  }

  /** Registers a worker with one slot. */
  consume() {
    const lease = { leaseMs: 60_000, heartbeatMs: 20_000, timeoutMs: undefined, graceMs: 30_000 };
    const settings = { queue: "default", fsync: false, slots: 1, maxAttempts: undefined, ...lease };
    const cells = new SharedArrayBuffer(4);
    this.#engine.receive({ kind: "consume", consumer: CONSUMER, held: [], settings: { ...settings, cells } });
  }

  /** Acknowledges `delivery`, if there is one, and claims the next, as a worker does in one message. */
  turn(delivery) {
    const claim = { op: "claim", ...ORIGIN, limit: 1, leaseMs: 60_000, waitMs: 60_000, consumer: CONSUMER, slot: 0 };
    const ack = delivery && { op: "settle", ...ORIGIN, lease: delivery, move: { event: "ack" } };
    const answers = this.#ask(ack === undefined ? [claim] : [ack, claim]);
    return answers.find((answer) => answer.claimed !== undefined).claimed[0];
  }

  close() {
    this.#engine.close();
  }

  #ask(commands) {
    this.#answers = [];
    Atomics.store(this.#signals, SIGNAL.tick, cellTime(monotonicMs()));
    for (const command of commands) command.id = ++this.#commands;
    this.#engine.receive({ kind: "batch", commands });
    while (this.#answers.length < commands.length) this.#engine.step();
    const failed = this.#answers.find(({ error, refused }) => error ?? refused);
    if (failed !== undefined) throw new Error(`The engine refused: ${JSON.stringify(failed)}`);
    return this.#answers;
  }
}
