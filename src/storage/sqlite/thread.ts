import { type MessagePort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { type ClockReading, monotonicMs, setClockBy } from "../thread-clock.ts";
import { Connection } from "./connection.ts";
import { unsafeSqlite } from "./doubts.ts";
import { type Driver, loadDriver, toStorageError } from "./driver.ts";
import { Engine } from "./engine.ts";
import { countWakeUp, type Gauges } from "./gauges.ts";
import { whileWorking } from "./leaving.ts";
import { Lookout } from "./lookout.ts";
import { KnownOrigins } from "./origins.ts";
import { errorOnWire } from "./outbox.ts";
import type { ThreadData } from "./protocol.ts";
import { END, type FromEngine, SIGNAL, type WarningOnWire } from "./protocol.ts";
import { type PackedToEngine, packFromEngine, unpackToEngine } from "./wire.ts";

/**
 * The engine's thread. It sleeps on a shared counter rather than in an event loop, so it wakes within microseconds and
 * runs to completion; timers and file watches do not work here and live with the client.
 */
export interface EngineThreadData extends ThreadData {
  readonly clock: ClockReading;
  readonly gauges: Gauges;
}

const LONGEST_WAIT_MS = 0x7fff_ffff;
/** How long to look out for the next call after one. */
const LOOKOUT_MS = 0.05;
/** For a message that is about to come: longer than it takes to write one. */
const ROUSED_MS = 0.25;

function run({ directory, port, signals, clock, gauges }: EngineThreadData): void {
  setClockBy(clock);
  const engine = whileWorking(signals, () => open(directory, port, signals, gauges));
  if (engine === undefined) return;
  try {
    pump(engine, port, signals, gauges);
  } finally {
    whileWorking(signals, () => engine.close());
  }
}

function open(directory: string, port: MessagePort, signals: Int32Array, gauges: Gauges): Engine | undefined {
  const post = (message: FromEngine): void => {
    const transfer: ArrayBuffer[] = [];
    port.postMessage(packFromEngine(message, transfer), transfer);
  };
  try {
    const driver = loadDriver();
    const cancelled = (): boolean => Atomics.load(signals, SIGNAL.end) !== END.no;
    const locksLost = (): void => post({ kind: "ready", warnings: [lostLocks(directory)] });
    const connection = new Connection({ directory, driver, cancelled, locksLost });
    const engine = new Engine({ connection, post, signals, gauges, clock: Date.now, monotonic: monotonicMs });
    post({ kind: "ready", warnings: warningsOf(driver, connection) });
    return engine;
  } catch (error) {
    post({ kind: "unopened", error: errorOnWire(toStorageError(error, directory)) });
    return undefined;
  }
}

function warningsOf(driver: Driver, { doubt }: Connection): WarningOnWire[] {
  const warnings: WarningOnWire[] = [];
  if (doubt !== undefined) warnings.push({ code: "LOCALQUEUE_FILESYSTEM", message: doubt });
  const unsafe = unsafeSqlite(driver);
  if (unsafe !== undefined) warnings.push({ code: "LOCALQUEUE_UNSAFE_SQLITE", message: unsafe });
  return warnings;
}

function lostLocks(directory: string): WarningOnWire {
  const message =
    `This program opened and closed localqueue.db-shm in ${directory}, which takes SQLite's locks on it away: commits of ` +
    "any process may be lost. Read the files of a queue from another process, or use `backup`.";
  return { code: "LOCALQUEUE_LOCKS_LOST", message };
}

function pump(engine: Engine, port: MessagePort, signals: Int32Array, gauges: Gauges): void {
  const origins = new KnownOrigins();
  const lookout = new Lookout(LOOKOUT_MS);
  const roused = new Lookout(ROUSED_MS);
  for (;;) {
    let busy = false;
    // Read before looking for messages: one that comes in between makes the wait return at once.
    const seen = Atomics.load(signals, SIGNAL.wake);
    for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
      const message = unpackToEngine(next.message as PackedToEngine, origins);
      if (message.kind === "shutdown") return;
      engine.receive(message);
      busy = true;
    }
    const isAwaited = (): boolean => Atomics.load(signals, SIGNAL.wake) !== seen;
    const isComing = Atomics.exchange(signals, SIGNAL.coming, 0) === 1;
    if (isComing && !busy && roused.sees(isAwaited)) continue;
    const ms = whileWorking(signals, () => engine.step());
    if (ms === undefined) return;
    if (ms === 0 || (busy && lookout.sees(isAwaited))) continue;
    countWakeUp(gauges, Atomics.wait(signals, SIGNAL.wake, seen, Math.min(ms, LONGEST_WAIT_MS)));
  }
}

run(workerData as EngineThreadData);
