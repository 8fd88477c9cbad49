import { clearTimeout, setTimeout } from "../../timers.ts";
import { cellTime, SLOT } from "../handler-cells.ts";
import type { PostgresTarget } from "../postgres-target.ts";
import type { ConsumerRecord, ConsumerRegistry } from "../slot-consumer.ts";
import type { Lease } from "../storage.ts";
import { StorageThread } from "../storage-thread.ts";
import { monotonicMs, readClock } from "../thread-clock.ts";
import { forOtherThread } from "./connect.ts";
import type { FromKeeper, KeeperThreadData, ToKeeper } from "./lease-thread.ts";

const TICK_MS = 250;
const RESTART_MS = { first: 50, longest: 5000 };

/** The consumers of a client, and the thread that renews their leases, which is there as long as there are any. */
export class LeaseKeeper implements ConsumerRegistry {
  readonly #target: PostgresTarget;
  readonly #ready: Promise<void>;
  #becomeReady: () => void = () => {};
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

  constructor(target: PostgresTarget) {
    this.#target = target;
    this.#ready = new Promise((resolve) => {
      this.#becomeReady = resolve;
    });
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

  /** Resolves once a consumer's leases can be renewed, or cannot be for the time being; absent = nobody has to wait. */
  readyFor(consumer: number): Promise<void> | undefined {
    const { heartbeatMs = false, timeoutMs } = this.settingsOf(consumer) ?? {};
    return heartbeatMs === false && timeoutMs === undefined ? undefined : this.#ready;
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
        ended: () => this.#restart(),
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
    } catch {
      this.#restart();
    }
  }

  #announce(consumer: number, { settings, held }: ConsumerRecord): void {
    this.#post({ kind: "consume", consumer, settings, held: held() });
  }

  #receive(message: FromKeeper): void {
    if (message.kind === "ready") {
      this.#restartMs = RESTART_MS.first;
      this.#becomeReady();
    } else for (const news of message.news) this.#consumers.get(news.consumer)?.tell(news);
  }

  /** The thread is gone. What it held is told to the next one. */
  #restart(): void {
    this.#thread = undefined;
    this.#becomeReady();
    if (this.#ended) return;
    setTimeout(() => {
      if (this.#thread === undefined && !this.#ended && this.#consumers.size > 0) this.#start();
    }, this.#restartMs).unref();
    this.#restartMs = Math.min(this.#restartMs * 2, RESTART_MS.longest);
  }

  async end(): Promise<void> {
    this.#ended = true;
    clearTimeout(this.#ticking);
    await this.#starting;
    this.#thread?.post({ kind: "shutdown" } satisfies ToKeeper);
    await this.#thread?.ending();
  }
}
