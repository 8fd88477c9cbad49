import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import { cellTime, END, type FromEngine, monotonicMs, readClock, SIGNAL, type ToEngine } from "./protocol.ts";
import { neverStarted } from "./refusals.ts";
import type { ThreadData } from "./thread.ts";
import { type PackedFromEngine, packToEngine, unpackFromEngine } from "./wire.ts";

/** How long the end of the process is held up for a statement that runs. */
const LEAVING_MS = 2000;

export interface EngineThreadListener {
  message(message: FromEngine): void;
  /** The thread is gone, for whatever reason; `error` is what it threw. */
  ended(error: unknown): void;
}

/** One running engine thread, seen from the client: messages to and fro, and whether it keeps the process alive. */
export class EngineThread {
  readonly #worker: Worker;
  readonly #port: MessagePort;
  readonly #signals: Int32Array;
  readonly #exited: Promise<void>;

  constructor(directory: string, signals: Int32Array, listener: EngineThreadListener) {
    const { port1, port2 } = new MessageChannel();
    const workerData: ThreadData = { directory, port: port2, signals, clock: readClock() };
    Atomics.store(signals, SIGNAL.end, END.no);
    this.#signals = signals;
    this.#port = port1;
    // Options and environment of the program are not for this thread: a loader or a preloaded module could break it.
    const options = {
      name: "localqueue",
      workerData,
      transferList: [port2],
      execArgv: [],
      env: {},
      // What it has at a time is small; without a bound, Node 24 lets short-lived garbage grow to 128 MB first.
      resourceLimits: { maxYoungGenerationSizeMb: 24 },
    };
    try {
      this.#worker = new Worker(new URL("./thread.js", import.meta.url), options);
    } catch (thrown) {
      port1.close();
      throw neverStarted(thrown);
    }
    let started = false;
    const receive = (message: unknown): void => {
      started = true;
      listener.message(unpackFromEngine(message as PackedFromEngine));
    };
    port1.on("message", receive);
    let error: unknown;
    this.#worker.on("error", (thrown) => {
      error = thrown;
    });
    this.#exited = new Promise((resolve) => {
      this.#worker.once("exit", () => {
        // What it said last may not have been read yet.
        for (let last = receiveMessageOnPort(port1); last !== undefined; last = receiveMessageOnPort(port1)) {
          receive(last.message);
        }
        port1.close();
        listener.ended(started ? error : neverStarted(error));
        resolve();
      });
    });
  }

  post(message: ToEngine): void {
    showAlive(this.#signals);
    const transfer: ArrayBuffer[] = [];
    this.#port.postMessage(packToEngine(message, transfer), transfer);
    wake(this.#signals);
  }

  /** While somebody waits for an answer the process must not end; an idle thread does not hold it up. */
  keepAlive(needed: boolean): void {
    if (needed) {
      this.#worker.ref();
      this.#port.ref();
    } else {
      this.#worker.unref();
      this.#port.unref();
    }
  }

  /** Blocks until the engine is outside SQLite, and sees to it that it will not enter it again. */
  leaveSqlite(): void {
    Atomics.store(this.#signals, SIGNAL.end, END.exiting);
    Atomics.wait(this.#signals, SIGNAL.working, 1, LEAVING_MS);
  }

  async shutDown(): Promise<void> {
    Atomics.store(this.#signals, SIGNAL.end, END.closing);
    this.post({ kind: "shutdown" });
    this.#worker.ref();
    await this.#exited;
  }
}

/** Lets the engine look around. */
export function wake(signals: Int32Array): void {
  Atomics.add(signals, SIGNAL.wake, 1);
  Atomics.notify(signals, SIGNAL.wake);
}

/** Shows the engine that the client's event loop turns. */
export function showAlive(signals: Int32Array): void {
  Atomics.store(signals, SIGNAL.tick, cellTime(monotonicMs()));
}
