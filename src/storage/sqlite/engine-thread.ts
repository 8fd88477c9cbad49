import { availableParallelism } from "node:os";
import { cellTime } from "../handler-cells.ts";
import { StorageThread } from "../storage-thread.ts";
import { monotonicMs, readClock } from "../thread-clock.ts";
import type { Gauges } from "./gauges.ts";
import { awaitOutside } from "./leaving.ts";
import { IntroducedOrigins } from "./origins.ts";
import { END, type FromEngine, SIGNAL, type ToEngine } from "./protocol.ts";
import type { EngineThreadData } from "./thread.ts";
import { type PackedFromEngine, packToEngine, unpackFromEngine } from "./wire.ts";

export interface EngineThreadListener {
  message(message: FromEngine): void;
  /** The thread is gone, for whatever reason; `error` is what it threw. */
  ended(error: unknown): void;
}

/** One running engine thread, seen from the client. */
export class EngineThread {
  readonly #thread: StorageThread;
  readonly #signals: Int32Array;
  readonly #origins = new IntroducedOrigins();

  constructor(directory: string, signals: Int32Array, gauges: Gauges, listener: EngineThreadListener) {
    const data: Omit<EngineThreadData, "port"> = { directory, signals, clock: readClock(), gauges };
    Atomics.store(signals, SIGNAL.end, END.no);
    this.#signals = signals;
    this.#thread = new StorageThread(() => new URL("./thread.js", import.meta.url), data, {
      message: (message) => listener.message(unpackFromEngine(message as PackedFromEngine)),
      ended: (error) => listener.ended(error),
    });
  }

  post(message: ToEngine): void {
    showAlive(this.#signals);
    const transfer: ArrayBuffer[] = [];
    this.#thread.post(packToEngine(message, transfer, this.#origins), transfer);
    wake(this.#signals);
  }

  keepAlive(needed: boolean): void {
    this.#thread.keepAlive(needed);
  }

  leaveSqlite(): void {
    awaitOutside(this.#signals);
  }

  async shutDown(): Promise<void> {
    Atomics.store(this.#signals, SIGNAL.end, END.closing);
    this.post({ kind: "shutdown" });
    await this.#thread.ending();
  }
}

const ALONE: boolean = availableParallelism() === 1;

/** A message is about to come: a sleeping thread can wake up, on another processor, while that is being written. */
export function rouse(signals: Int32Array): void {
  if (ALONE) return;
  Atomics.store(signals, SIGNAL.coming, 1);
  wake(signals);
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
