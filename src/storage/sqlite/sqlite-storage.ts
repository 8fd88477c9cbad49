import { LeaseExpiredError, QueueClosedError } from "../../errors.ts";
import type { JobState } from "../../state.ts";
import type {
  ClaimRequest,
  Consumer,
  ConsumerListener,
  ConsumerSettings,
  Delivery,
  Enqueued,
  Entry,
  Lease,
  QueueStats,
  Settlement,
  Storage,
  StorageSettings,
  Wait,
} from "../storage.ts";
import { Client, type Demand, type Reply } from "./client.ts";
import { ENTRY_BYTES } from "./outgoing.ts";
import {
  type Answer,
  type ClaimCommand,
  type Command,
  cellTime,
  type DeliveryOnWire,
  type ExtendCommand,
  type LeaseNews,
  monotonicMs,
  type ReclaimCommand,
  type SettleCommand,
  SLOT,
  type StatsCommand,
} from "./protocol.ts";

/** How long an operation without a time-out of its own waits for the database's lock. */
const LOCK_MS = 30_000;
/** Looking without waiting still gives a writer that is just committing this long. */
const LOOK_LOCK_MS = 50;
/** What is still to be done while closing waits no longer than this. */
const CLOSING_LOCK_MS = 500;

export function openSqliteStorage(directory: string, settings: StorageSettings): Storage {
  return new SqliteStorage(directory, settings);
}

let sessions = 0;

class SqliteStorage implements Storage {
  readonly #directory: string;
  readonly #queue: string;
  readonly #fsync: boolean;
  readonly #session = ++sessions;
  readonly #consumers = new Set<SqliteConsumer>();
  readonly #underWay = new Set<Promise<unknown>>();
  #client: Client | undefined;
  #closing: Promise<void> | undefined;

  constructor(directory: string, { queue, fsync }: StorageSettings) {
    this.#directory = directory;
    this.#queue = queue;
    this.#fsync = fsync ?? false;
  }

  async put(entries: readonly Entry[], { timeoutMs = LOCK_MS, signal }: Wait): Promise<Enqueued[]> {
    const { answer } = await this.#request<{ put: Enqueued[] }>(this.#open(), {
      make: (id, batch) => ({ ...this.#base(id, timeoutMs), op: "put", ...batch.encode(entries) }),
      bytes: entries.reduce((sum, { payload }) => sum + payload.length + ENTRY_BYTES, 0),
      patienceMs: timeoutMs,
      signal,
    });
    return answer.put;
  }

  claim({ limit, leaseMs, timeoutMs, signal }: ClaimRequest): Promise<Delivery[]> {
    return this.claimFor({ limit, leaseMs, waitMs: timeoutMs ?? Number.POSITIVE_INFINITY }, signal);
  }

  /** As `claim`, also for a consumer's slot. */
  async claimFor(
    claim: Pick<ClaimCommand, "limit" | "leaseMs" | "waitMs" | "consumer" | "slot">,
    signal: AbortSignal | undefined,
  ): Promise<Delivery[]> {
    const { waitMs } = claim;
    const askedAt = monotonicMs();
    const lockMs = waitMs === 0 ? LOOK_LOCK_MS : Math.min(waitMs, LOCK_MS);
    const { answer, memory } = await this.#request<{ claimed: readonly DeliveryOnWire[] }>(this.#open(), {
      make: (id) => ({ ...this.#base(id, lockMs), op: "claim", ...claim }),
      patienceMs: Math.max(waitMs, lockMs),
      signal,
    });
    const deliveries = answer.claimed.map((delivery) => received(delivery, memory));
    // What was claimed may be lost again before it could be handed out; who has time left waits on.
    const leftMs = waitMs - (monotonicMs() - askedAt);
    if (deliveries.length === 0 && leftMs > 0) return this.claimFor({ ...claim, waitMs: leftMs }, signal);
    if (!signal?.aborted || deliveries.length === 0) return deliveries;
    // The abort lost its race against the claim: nobody will take these.
    await Promise.allSettled(deliveries.map((delivery) => this.#giveBack(delivery)));
    throw signal.reason;
  }

  async #giveBack({ id, receipt }: Lease): Promise<void> {
    if (this.#client === undefined) return;
    const lockMs = this.#closing === undefined ? LOCK_MS : CLOSING_LOCK_MS;
    await this.#request(this.#client, {
      make: (command) => ({
        ...this.#base(command, lockMs),
        op: "settle",
        lease: { id, receipt },
        move: { event: "release" },
      }),
      patienceMs: lockMs,
    });
  }

  async settle({ id, receipt }: Lease, move: Settlement): Promise<JobState> {
    try {
      const { settled } = await this.#ask<{ settled: JobState }>({ op: "settle", lease: { id, receipt }, move });
      this.#forget(receipt);
      return settled;
    } catch (error) {
      if (error instanceof LeaseExpiredError) this.#forget(receipt);
      throw error;
    }
  }

  #forget(receipt: string): void {
    for (const consumer of this.#consumers) consumer.forget(receipt);
  }

  async extend({ id, receipt }: Lease, ms: number): Promise<number> {
    return (await this.#ask<{ extended: number }>({ op: "extend", lease: { id, receipt }, ms })).extended;
  }

  async reclaim(): Promise<number> {
    return (await this.#ask<{ reclaimed: number }>({ op: "reclaim" })).reclaimed;
  }

  async stats(): Promise<QueueStats> {
    return (await this.#ask<{ stats: QueueStats }>({ op: "stats" })).stats;
  }

  consume(settings: ConsumerSettings, listener: ConsumerListener): Consumer {
    const cells = new SharedArrayBuffer(settings.slots * 4);
    const onWire = { ...settings, queue: this.#queue, fsync: this.#fsync, cells };
    const consumer = new SqliteConsumer(this, onWire, listener, this.#open(), () => this.#consumers.delete(consumer));
    this.#consumers.add(consumer);
    return consumer;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const client = this.#client;
    if (client === undefined) return;
    for (const consumer of this.#consumers) consumer.close();
    client.closeSession(this.#session);
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
    await client.release();
  }

  #open(): Client {
    if (this.#closing !== undefined) throw new QueueClosedError("The queue was closed.");
    this.#client ??= Client.acquire(this.#directory);
    return this.#client;
  }

  #base(id: number, lockMs: number): { id: number; session: number; queue: string; fsync: boolean; lockMs: number } {
    return { id, session: this.#session, queue: this.#queue, fsync: this.#fsync, lockMs };
  }

  async #ask<A>(
    command:
      | Pick<SettleCommand, "op" | "lease" | "move">
      | Pick<ExtendCommand, "op" | "lease" | "ms">
      | Pick<ReclaimCommand, "op">
      | Pick<StatsCommand, "op">,
  ): Promise<A> {
    const make = (id: number): Command => ({ ...this.#base(id, LOCK_MS), ...command });
    return (await this.#request<A>(this.#open(), { make, patienceMs: LOCK_MS })).answer;
  }

  /** Answers are matched to commands by the engine: each `op` has its own form of answer. */
  async #request<A>(client: Client, demand: Demand): Promise<{ answer: A; memory: ArrayBuffer | undefined }> {
    const request = client.request(demand) as Promise<Reply<Answer & A>>;
    this.#underWay.add(request);
    try {
      return await request;
    } finally {
      this.#underWay.delete(request);
    }
  }
}

function received(
  { payload: { offset, length }, ...delivery }: DeliveryOnWire,
  memory: ArrayBuffer | undefined,
): Delivery {
  return { ...delivery, payload: new Uint8Array(memory ?? new ArrayBuffer(0), offset, length) };
}

class SqliteConsumer implements Consumer {
  readonly #storage: SqliteStorage;
  readonly #client: Client;
  readonly #settings: ConsumerSettings;
  readonly #cells: Int32Array;
  readonly #id: number;
  readonly #onClose: () => void;
  readonly #held = new Map<string, { id: number; slot: number }>();
  /** The receipt of the delivery that each slot was given last. */
  readonly #occupants: string[] = [];
  #closed = false;

  constructor(
    storage: SqliteStorage,
    settings: ConsumerSettings & { queue: string; fsync: boolean; cells: SharedArrayBuffer },
    listener: ConsumerListener,
    client: Client,
    onClose: () => void,
  ) {
    this.#storage = storage;
    this.#client = client;
    this.#settings = settings;
    this.#cells = new Int32Array(settings.cells);
    this.#onClose = onClose;
    this.#id = client.consume({
      settings,
      held: () => [...this.#held].map(([receipt, { id, slot }]) => ({ id, receipt, slot })),
      tell: (news) => this.#tell(news, listener),
    });
  }

  async claim(
    slot: number,
    { wait, signal }: { wait: boolean; signal?: AbortSignal | undefined },
  ): Promise<Delivery | undefined> {
    const waitMs = wait ? Number.POSITIVE_INFINITY : 0;
    const claim = { limit: 1, leaseMs: this.#settings.leaseMs, waitMs, consumer: this.#id, slot };
    const [delivery] = await this.#storage.claimFor(claim, signal);
    if (delivery !== undefined) {
      this.#held.set(delivery.receipt, { id: delivery.id, slot });
      this.#occupants[slot] = delivery.receipt;
    }
    return delivery;
  }

  start(slot: number): boolean {
    const receipt = this.#occupants[slot] ?? "";
    // The lease may have been lost while the payload was decoded.
    if (!this.#held.has(receipt)) return false;
    const started = cellTime(monotonicMs());
    if (Atomics.compareExchange(this.#cells, slot, SLOT.waiting, started) === SLOT.waiting) return true;
    this.#held.delete(receipt);
    return false;
  }

  forget(receipt: string): void {
    this.#held.delete(receipt);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#client.dismiss(this.#id);
    this.#onClose();
  }

  #tell({ receipt, news, leaseUntil = 0 }: LeaseNews, listener: ConsumerListener): void {
    switch (news) {
      case "renewed":
        listener.leaseRenewed(receipt, leaseUntil);
        break;
      case "timedOut":
        listener.timedOut(receipt);
        break;
      case "overdue":
        this.#held.delete(receipt);
        listener.overdue(receipt);
        break;
      case "lost":
        this.#held.delete(receipt);
        listener.leaseLost(receipt);
        break;
    }
  }
}
