import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import { neverStarted } from "./refusals.ts";

export interface ThreadListener {
  message(message: unknown): void;
  /** The thread is gone, for whatever reason; `error` is what it threw. */
  ended(error: unknown): void;
}

/** One running thread, seen from the client: messages to and fro, and whether it keeps the process alive. */
export class StorageThread {
  readonly exited: Promise<void>;
  readonly #worker: Worker;
  readonly #port: MessagePort;
  #isKeptAlive = true;

  /** `entry` throws where a bundler left no module's URL. */
  constructor(entry: () => URL, data: object, listener: ThreadListener, env: NodeJS.ProcessEnv = {}) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    // Options of the program are not for this thread: a loader or a preloaded module could break it.
    const options = {
      name: "localqueue",
      workerData: { ...data, port: port2 },
      transferList: [port2],
      execArgv: [],
      env,
      // What it has at a time is small; without a bound, Node 24 lets short-lived garbage grow to 128 MB first.
      resourceLimits: { maxYoungGenerationSizeMb: 24 },
    };
    try {
      this.#worker = new Worker(entry(), options);
    } catch (thrown) {
      port1.close();
      throw neverStarted(thrown);
    }
    let started = false;
    const receive = (message: unknown): void => {
      started = true;
      listener.message(message);
    };
    port1.on("message", receive);
    let error: unknown;
    this.#worker.on("error", (thrown) => {
      error = thrown;
    });
    this.exited = new Promise((resolve) => {
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

  post(message: unknown, transfer: readonly ArrayBuffer[] = []): void {
    this.#port.postMessage(message, transfer as ArrayBuffer[]);
  }

  /** While somebody waits for an answer the process must not end; an idle thread does not hold it up. */
  keepAlive(needed: boolean): void {
    if (needed === this.#isKeptAlive) return;
    this.#isKeptAlive = needed;
    if (needed) {
      this.#worker.ref();
      this.#port.ref();
    } else {
      this.#worker.unref();
      this.#port.unref();
    }
  }

  /** Waits for the thread, which was asked to end; that holds up the end of the process. */
  async ending(): Promise<void> {
    this.#worker.ref();
    await this.exited;
  }
}
