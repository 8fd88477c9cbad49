import { StorageError } from "../../errors.ts";
import { clearTimeout, setTimeout, settlesWithin } from "../../timers.ts";
import { cellTime, SLOT } from "../handler-cells.ts";
import type { PostgresTarget } from "../postgres-target.ts";
import type { ConsumerRecord, ConsumerRegistry } from "../slot-consumer.ts";
import type { Lease } from "../storage.ts";
import { StorageThread } from "../storage-thread.ts";
import { monotonicMs, readClock } from "../thread-clock.ts";
import { forOtherThread } from "./connect.ts";
import { toStorageError } from "./failures.ts";
import type { FromKeeper, KeeperThreadData, ToKeeper } from "./lease-thread.ts";
import { type Runner, troubleOf } from "./runner.ts";

const TICK_MS = 250;
/** How long claims wait for leases that cannot be renewed for the time being. */
const PATIENCE_MS = 30_000;
const RESTART_MS = { first: 50, longest: 5000 };

/** The consumers of a client, and the thread that renews their leases, which is there as long as there are any. */
export class LeaseKeeper implements ConsumerRegistry {
  readonly #target: PostgresTarget;
  readonly #runner: Runner;
  /** Resolves once the thread has a connection, rejects if it will not have one. */
  #ready: Promise<void>;
  #become: (ready: true | StorageError) => void = () => {};
  /** Why it has none so far. */
  #failure: StorageError | undefined;
  readonly #tick = new Int32Array(new SharedArrayBuffer(4));
  readonly #consumers = new Map<number, ConsumerRecord>();
  /** For a thread that is just being started. */
  #early: ToKeeper[] = [];
  #ids = 0;
  #thread: StorageThread | undefined;
  #starting: Promise<void> | undefined;
  #restartMs = RESTART_MS.first;
  #ticking: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  constructor(target: PostgresTarget, runner: Runner) {
    this.#target = target;
    this.#runner = runner;
    this.#ready = this.#readiness();
  }

  #readiness(): Promise<void> {
    const ready = new Promise<void>((resolve, reject) => {
      this.#become = (outcome) => (outcome === true ? resolve() : reject(outcome));
    });
    ready.catch(() => {}); // perhaps nobody waits
    return ready;
  }

  get consumers(): Iterable<ConsumerRecord> {
    return this.#consumers.values();
  }

  get size(): number {
    return this.#consumers.size;
  }

  settingsOf(consumer: number): ConsumerRecord["settings"] | undefined {
    return this.#consumers.get(consumer)?.settings;
  }

  /** Resolves once a consumer's leases can be renewed, rejects if they cannot be; absent = there is nothing to wait for. */
  readyFor(consumer: number): Promise<void> | undefined {
    const { heartbeatMs = false, timeoutMs } = this.settingsOf(consumer) ?? {};
    return heartbeatMs === false && timeoutMs === undefined ? undefined : this.#untilReady();
  }

  async #untilReady(): Promise<void> {
    const ready = this.#ready;
    if (await settlesWithin(ready, PATIENCE_MS)) return await ready;
    throw this.#failure ?? new StorageError("BUSY", "The thread that renews leases has not started yet. Try again.");
  }

  consume(record: ConsumerRecord): number {
    const consumer = ++this.#ids;
    this.#consumers.set(consumer, record);
    this.#beat();
    if (this.#thread === undefined) this.#start();
    else this.#announce(consumer, record);
    return consumer;
  }

  dismiss(consumer: number): void {
    this.#consumers.delete(consumer);
    this.#post({ kind: "dismiss", consumer });
  }

  /** A job was claimed for a slot: its lease is to be renewed from now on. */
  hold(consumer: number, slot: number, leases: readonly Lease[]): void {
    const record = this.#consumers.get(consumer);
    if (record === undefined) return;
    Atomics.store(new Int32Array(record.settings.cells), slot, SLOT.waiting);
    this.#post({ kind: "hold", consumer, slot, leases: leases.map(({ id, receipt }) => ({ id, receipt })) });
  }

  /** A delivery is over. */
  release(receipt: string): void {
    this.#post({ kind: "release", receipt });
  }

  extended(receipt: string, ms: number): void {
    this.#post({ kind: "extended", receipt, ms });
  }

  #post(message: ToKeeper): void {
    if (this.#thread !== undefined) this.#thread.post(message);
    else if (this.#consumers.size > 0) this.#early.push(message);
  }

  /** Shows that this thread's event loop turns; keeps the process alive as long as there are consumers. */
  #beat(): void {
    clearTimeout(this.#ticking);
    Atomics.store(this.#tick, 0, cellTime(monotonicMs()));
    this.#ticking = this.#consumers.size === 0 ? undefined : setTimeout(() => this.#beat(), TICK_MS);
  }

  #start(): void {
    this.#starting ??= this.#begin().finally(() => {
      this.#starting = undefined;
    });
  }

  async #begin(): Promise<void> {
    try {
      const target = await forOtherThread(this.#target);
      if (this.#ended) return;
      const data: Omit<KeeperThreadData, "port"> = { target, tick: this.#tick, clock: readClock() };
      const listener = {
        message: (message: unknown) => this.#receive(message as FromKeeper),
        ended: (error: unknown) => this.#restart(error),
      };
      // `pg` reads the environment.
      this.#thread = new StorageThread(
        () => new URL("./lease-thread.js", import.meta.url),
        data,
        listener,
        process.env,
      );
      this.#thread.keepAlive(false);
      for (const [consumer, record] of this.#consumers) this.#announce(consumer, record);
      for (const message of this.#early.splice(0)) this.#post(message);
    } catch (error) {
      this.#restart(toStorageError(error, this.#runner.place));
    }
  }

  #announce(consumer: number, { settings, held }: ConsumerRecord): void {
    this.#post({ kind: "consume", consumer, settings, held: held() });
  }

  #receive(message: FromKeeper): void {
    if (message.kind === "ready") {
      this.#restartMs = RESTART_MS.first;
      this.#become(true);
    } else if (message.kind === "unreachable") {
      const { code, text } = message;
      this.#fail(new StorageError(code, text));
    } else for (const news of message.news) this.#consumers.get(news.consumer)?.tell(news);
  }

  /** Leases cannot be renewed: whoever would need that is told, unless a server that was there before is waited for. */
  #fail(failure: StorageError): void {
    this.#failure = failure;
    if (this.#runner.isTransient(troubleOf(failure))) return;
    this.#become(failure);
    this.#ready = this.#readiness();
  }

  /** The thread is gone, or could not be started. What it held is told to the next one. */
  #restart(error: unknown): void {
    this.#thread = undefined;
    if (this.#ended) return;
    // It was never there: whatever ends one at work is an error of another kind.
    if (error instanceof StorageError) this.#fail(error);
    setTimeout(() => {
      if (this.#thread === undefined && !this.#ended && this.#consumers.size > 0) this.#start();
    }, this.#restartMs).unref();
    this.#restartMs = Math.min(this.#restartMs * 2, RESTART_MS.longest);
  }

  async end(): Promise<void> {
    this.#ended = true;
    // Whoever waited for it has given up; a timer must not keep the process alive.
    this.#become(true);
    clearTimeout(this.#ticking);
    await this.#starting;
    this.#thread?.post({ kind: "shutdown" } satisfies ToKeeper);
    await this.#thread?.ending();
  }
}
