import { EventEmitter } from "node:events";
import { createRequire, syncBuiltinESMExports } from "node:module";
import { Connection } from "../../../dist/storage/sqlite/connection.js";
import { loadDriver, toStorageError } from "../../../dist/storage/sqlite/driver.js";
import { Engine } from "../../../dist/storage/sqlite/engine.js";
import { KnownOrigins } from "../../../dist/storage/sqlite/origins.js";
import { errorOnWire } from "../../../dist/storage/sqlite/outbox.js";
import type { FromEngine } from "../../../dist/storage/sqlite/protocol.js";
import type { EngineThreadData } from "../../../dist/storage/sqlite/thread.js";
import { type PackedToEngine, packFromEngine, unpackToEngine } from "../../../dist/storage/sqlite/wire.js";
import { monotonicMs } from "../../../dist/storage/thread-clock.js";

/** Calls the function some time later: when, and before or after what else, is up to the test. */
export type Schedule = (label: string, run: () => void) => void;

/** Sleeps that are longer are not waited for. */
const LONGEST_SLEEP_MS = 2000;

/** What the package takes from `node:worker_threads`. */
const threads = createRequire(import.meta.url)("node:worker_threads") as Record<string, unknown>;

/**
 * Runs the engines of this process on this thread: each message arrives, and each engine works, when `schedule` says so.
 * Client and engine are the real ones, with what they really say to each other; only the thread between them is not.
 */
export class ScheduledThreads {
  readonly #schedule: Schedule;
  readonly #real: Record<string, unknown> = { ...threads };
  readonly #running = new Set<ScheduledEngine>();
  /** Engines that were killed. */
  kills = 0;

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
    const [running, real] = [this.#running, this.#real];
    class Channel {
      readonly port1: Port = new Port("an answer", schedule);
      readonly port2: Port = new Port("a message", schedule);

      constructor() {
        this.port1.peer = this.port2;
        this.port2.peer = this.port1;
      }
    }
    class EngineInstead extends ScheduledEngine {
      constructor(_: URL, { workerData }: { workerData: EngineThreadData }) {
        super(workerData, schedule, () => running.delete(this));
        running.add(this);
      }
    }
    const receive = (port: unknown): unknown =>
      port instanceof Port ? port.take() : (real["receiveMessageOnPort"] as (port: unknown) => unknown)(port);
    Object.assign(threads, { MessageChannel: Channel, Worker: EngineInstead, receiveMessageOnPort: receive });
    syncBuiltinESMExports();
  }

  /** As if a thread ran out of memory: before it did what it had read, or when it had, and before it could answer. */
  kill(afterWork: boolean): void {
    for (const engine of this.#running) {
      this.kills++;
      this.#schedule("a death", () => engine.die(new Error("the engine was killed"), afterWork));
    }
  }

  restore(): void {
    Object.assign(threads, this.#real);
    syncBuiltinESMExports();
  }
}

/** One end of a channel: what comes arrives in order, each message at its own time. */
class Port {
  peer: Port | undefined;
  readonly #label: string;
  readonly #schedule: Schedule;
  readonly #inbox: unknown[] = [];
  #listener: ((message: unknown) => void) | undefined;
  #arrivals = 0;

  constructor(label: string, schedule: Schedule) {
    this.#label = label;
    this.#schedule = schedule;
  }

  on(_: "message", listener: (message: unknown) => void): void {
    this.#listener = listener;
  }

  postMessage(message: unknown, transfer: ArrayBuffer[]): void {
    const { peer } = this;
    if (peer === undefined) return;
    peer.#inbox.push(structuredClone(message, { transfer }));
    // One arrival at a time: two of them could not overtake each other.
    if (peer.#arrivals++ === 0) peer.#arrive();
  }

  #arrive(): void {
    this.#schedule(this.#label, () => {
      // What nobody listens for yet stays.
      const next = this.#listener && this.take();
      if (next !== undefined) this.#listener?.(next.message);
      if (--this.#arrivals > 0) this.#arrive();
    });
  }

  take(): { message: unknown } | undefined {
    return this.#inbox.length === 0 ? undefined : { message: this.#inbox.shift() };
  }

  close(): void {
    this.#listener = undefined;
  }

  ref(): void {}
  unref(): void {}
}

/** An engine as the client knows it: a worker, which is opened, reads, works, and ends. */
class ScheduledEngine extends EventEmitter {
  readonly #data: EngineThreadData;
  readonly #schedule: Schedule;
  readonly #onEnd: () => void;
  readonly #origins = new KnownOrigins();
  #engine: Engine | undefined;
  #connection: Connection | undefined;
  #sleep: NodeJS.Timeout | undefined;
  #isMute = false;
  #ended = false;

  constructor(data: EngineThreadData, schedule: Schedule, onEnd: () => void) {
    super();
    this.#data = data;
    this.#schedule = schedule;
    this.#onEnd = onEnd;
    schedule("an opening", () => this.#open());
  }

  get #port(): Port {
    return this.#data.port as unknown as Port;
  }

  #post(message: FromEngine): void {
    if (this.#isMute) return;
    const transfer: ArrayBuffer[] = [];
    this.#port.postMessage(packFromEngine(message, transfer), transfer);
  }

  #open(): void {
    if (this.#ended) return;
    const { directory, signals, gauges } = this.#data;
    try {
      this.#connection = new Connection({ directory, driver: loadDriver() });
      // Transactions take no time: how long an engine pauses after one does not depend on the machine's load.
      Object.defineProperty(this.#connection, "heldMs", { get: () => 0, set: () => {} });
      const post = (message: FromEngine): void => this.#post(message);
      const [connection, clock, monotonic] = [this.#connection, Date.now, monotonicMs];
      this.#engine = new Engine({ connection, post, signals, gauges, clock, monotonic });
    } catch (error) {
      this.#post({ kind: "unopened", error: errorOnWire(toStorageError(error, directory)) });
      this.#end();
      return;
    }
    this.#post({ kind: "ready", warnings: [] });
    // What came before it was open.
    this.#port.on("message", (message) => this.#read(message));
    for (let next = this.#port.take(); next !== undefined; next = this.#port.take()) this.#read(next.message);
  }

  #read(packed: unknown): void {
    if (this.#ended) return;
    const message = unpackToEngine(packed as PackedToEngine, this.#origins);
    if (message.kind === "shutdown") {
      this.#engine?.close();
      if (!this.#isMute) this.#end();
      return;
    }
    this.#engine?.receive(message);
    this.#schedule("work", () => this.#work());
  }

  #work(): void {
    if (this.#ended) return;
    clearTimeout(this.#sleep);
    const ms = this.#engine?.step() ?? 0;
    const wakeUp = (): void => this.#schedule("work", () => this.#work());
    if (ms === 0) wakeUp();
    else if (ms < LONGEST_SLEEP_MS) this.#sleep = setTimeout(wakeUp, ms).unref();
  }

  die(error: Error, afterWork: boolean): void {
    if (this.#ended) return;
    if (afterWork) {
      this.#isMute = true;
      for (let next = this.#port.take(); next !== undefined; next = this.#port.take()) this.#read(next.message);
      this.#work();
    }
    this.#connection?.close();
    this.emit("error", error);
    this.#end();
  }

  #end(): void {
    this.#ended = true;
    clearTimeout(this.#sleep);
    this.#onEnd();
    this.#schedule("an end", () => this.emit("exit"));
  }

  ref(): void {}
  unref(): void {}
}
