import path from "node:path";
import { LeaseExpiredError, QueueClosedError, StorageError } from "../../errors.ts";
import type { JobState } from "../../state.ts";
import type { BackupReport, BackupRequest, IntegrityCheck, IntegrityReport } from "../care.ts";
import type {
  ClaimRequest,
  Consumer,
  ConsumerListener,
  ConsumerSettings,
  Delivery,
  Enqueued,
  Entry,
  FailedRecord,
  FailedRequest,
  JobKey,
  JobRecord,
  Lease,
  ListRequest,
  QueueStats,
  Settlement,
  Storage,
  StorageDiagnostics,
  StorageSettings,
  Wait,
} from "../storage.ts";
import { Client } from "./client.ts";
import { readGauges } from "./gauges.ts";
import { weightOf } from "./outgoing.ts";
import {
  type Answer,
  type AnswerOf,
  type ClaimCommand,
  cellTime,
  type ExtendCommand,
  type LeaseNews,
  monotonicMs,
  type NewJob,
  type Origin,
  type PutCommand,
  type ReclaimCommand,
  type SettleCommand,
  SLOT,
  type StatsCommand,
} from "./protocol.ts";
import type { Demand } from "./request.ts";
import { longestRunning } from "./running.ts";
import type { TaskInput, TaskName, TaskResult } from "./side.ts";
import { Tally } from "./tally.ts";

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
  readonly #origin: Origin;
  readonly #consumers = new Set<SqliteConsumer>();
  readonly #underWay = new Tally();
  /** Ends long tasks. */
  readonly #ending = new AbortController();
  #client: Client | undefined;
  #closing: Promise<void> | undefined;

  constructor(directory: string, { queue, fsync = false, text = false }: StorageSettings) {
    this.#directory = directory;
    this.#origin = { session: ++sessions, queue, fsync, text };
  }

  put(entries: readonly Entry[], { timeoutMs = LOCK_MS, signal }: Wait): Promise<Enqueued[]> {
    const jobs = entries.map(ownJob);
    const bytes = weightOf(jobs);
    const command: PutCommand = { op: "put", id: 0, ...this.#origin, lockMs: timeoutMs, bytes, entries: jobs };
    return this.#request({ command, bytes, patienceMs: timeoutMs, signal, read: put });
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
    const command: ClaimCommand = { op: "claim", id: 0, ...this.#origin, lockMs, ...claim };
    this.#underWay.begin();
    try {
      const deliveries = await this.#request({
        command,
        patienceMs: Math.max(waitMs, lockMs),
        signal,
        read: claimed,
      });
      // What was claimed may be lost again before it could be handed out; who has time left waits on.
      const leftMs = waitMs - (monotonicMs() - askedAt);
      if (deliveries.length === 0 && leftMs > 0) return await this.claimFor({ ...claim, waitMs: leftMs }, signal);
      if (!signal?.aborted || deliveries.length === 0) return deliveries;
      // The abort lost its race against the claim: nobody will take these.
      await Promise.allSettled(deliveries.map((delivery) => this.#giveBack(delivery)));
      throw signal.reason;
    } finally {
      this.#underWay.end();
    }
  }

  async #giveBack(lease: Lease): Promise<void> {
    if (this.#client === undefined) return;
    const lockMs = this.#closing === undefined ? LOCK_MS : CLOSING_LOCK_MS;
    const command = this.#settlement(lease, { event: "release" }, lockMs);
    await this.#client.request({ command, patienceMs: lockMs, read: settled }, this.#underWay);
  }

  settle(lease: Lease, move: Settlement): Promise<JobState> {
    const settling = this.settleHeld(lease, move);
    if (this.#consumers.size === 0) return settling;
    return onceOver(settling, () => {
      for (const consumer of this.#consumers) consumer.forget(lease.receipt);
    });
  }

  /** As `settle`, for a consumer that keeps account of its deliveries itself. */
  settleHeld(lease: Lease, move: Settlement): Promise<JobState> {
    return this.#request({ command: this.#settlement(lease, move, LOCK_MS), patienceMs: LOCK_MS, read: settled });
  }

  #settlement({ id, receipt }: Lease, move: Settlement, lockMs: number): SettleCommand {
    return { op: "settle", id: 0, ...this.#origin, lockMs, lease: { id, receipt }, move };
  }

  extend({ id, receipt }: Lease, ms: number): Promise<number> {
    const lease = { id, receipt };
    const command: ExtendCommand = { op: "extend", id: 0, ...this.#origin, lockMs: LOCK_MS, lease, ms };
    return this.#request({ command, patienceMs: LOCK_MS, read: extended });
  }

  reclaim(): Promise<number> {
    const command: ReclaimCommand = { op: "reclaim", id: 0, ...this.#origin, lockMs: LOCK_MS };
    return this.#request({ command, patienceMs: LOCK_MS, read: reclaimed });
  }

  stats(): Promise<QueueStats> {
    const command: StatsCommand = { op: "stats", id: 0, ...this.#origin, lockMs: LOCK_MS };
    return this.#request({ command, patienceMs: LOCK_MS, read: stats });
  }

  find(by: JobKey): Promise<JobRecord | undefined> {
    return this.#look("find", { queue: this.#origin.queue, by });
  }

  list(which: ListRequest): Promise<JobRecord[]> {
    return this.#look("list", { queue: this.#origin.queue, which });
  }

  listFailed(which: FailedRequest): Promise<FailedRecord[]> {
    return this.#look("listFailed", { queue: this.#origin.queue, which });
  }

  async diagnostics(): Promise<StorageDiagnostics> {
    const { queue, fsync } = this.#origin;
    const client = this.#open();
    const report = await this.#look("diagnose", { queue });
    return {
      ...report,
      ...readGauges(client.gauges),
      ...longestRunning(client.consumers, queue),
      synchronous: fsync ? 2 : 1,
      durabilityMode: fsync ? "full" : "normal",
      busyTimeoutMs: LOCK_MS,
    };
  }

  /** Reads beside the engine, which first opens the file if need be, and sees whether it is still the same. */
  async #look<N extends TaskName>(name: N, input: TaskInput<N>): Promise<TaskResult<N>> {
    const { side } = this.#open();
    this.#underWay.begin();
    try {
      await this.stats();
      return await side.quick(name, input);
    } finally {
      this.#underWay.end();
    }
  }

  checkIntegrity({ onProgress, ...check }: IntegrityCheck): Promise<IntegrityReport> {
    return this.#care("checkIntegrity", check, onProgress);
  }

  backup({ destination, onProgress }: BackupRequest): Promise<BackupReport> {
    return this.#care("backup", { destination, directory: path.resolve(destination) }, onProgress);
  }

  vacuum(): Promise<void> {
    return this.#care("vacuum", undefined);
  }

  /** Does what takes long on a thread of its own; closing ends it early. */
  async #care<N extends TaskName, P = unknown>(
    name: N,
    input: TaskInput<N>,
    onProgress?: (progress: P) => void,
  ): Promise<TaskResult<N>> {
    const { side } = this.#open();
    this.#underWay.begin();
    try {
      await this.stats().catch((error: unknown) => {
        // What cannot be read well enough to be used can be looked at all the same.
        if (!(error instanceof StorageError && error.code === "CORRUPT" && name === "checkIntegrity")) throw error;
      });
      const tell = onProgress && ((progress: unknown): void => onProgress(progress as P));
      return await side.long(name, input, { signal: this.#ending.signal, onProgress: tell });
    } finally {
      this.#underWay.end();
    }
  }

  consume(settings: ConsumerSettings, listener: ConsumerListener): Consumer {
    const { queue, fsync } = this.#origin;
    const cells = new SharedArrayBuffer(settings.slots * 4);
    const onWire = { ...settings, queue, fsync, cells };
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
    client.closeSession(this.#origin.session);
    this.#ending.abort(new QueueClosedError("The queue was closed."));
    await this.#underWay.idle();
    await client.release();
  }

  #open(): Client {
    if (this.#closing !== undefined) throw new QueueClosedError("The queue was closed.");
    this.#client ??= Client.acquire(this.#directory);
    return this.#client;
  }

  #request<A extends Answer, Result>(demand: Demand<A, Result>): Promise<Result> {
    try {
      return this.#open().request(demand, this.#underWay);
    } catch (error) {
      return Promise.reject(error);
    }
  }
}

/** What callers get of the answers. */
const put = (answer: AnswerOf<"put">): Enqueued[] => answer.put;
const claimed = (answer: AnswerOf<"claimed">): Delivery[] => answer.claimed;
const settled = (answer: AnswerOf<"settled">): JobState => answer.settled;
const extended = (answer: AnswerOf<"extended">): number => answer.extended;
const reclaimed = (answer: AnswerOf<"reclaimed">): number => answer.reclaimed;
const stats = (answer: AnswerOf<"stats">): QueueStats => answer.stats;

/** The job as it will be stored, whatever the caller does to its buffer after the call. */
function ownJob({ payload, jobId, delayMs, maxAttempts }: Entry): NewJob {
  const own = typeof payload === "string" ? payload : Uint8Array.prototype.slice.call(payload);
  return { payload: own, jobId: jobId ?? null, delayMs, maxAttempts };
}

/** Calls `forget` when the settlement, or its refusal, shows that the delivery is over. */
async function onceOver(settling: Promise<JobState>, forget: () => void): Promise<JobState> {
  try {
    const state = await settling;
    forget();
    return state;
  } catch (error) {
    if (error instanceof LeaseExpiredError) forget();
    throw error;
  }
}

class SqliteConsumer implements Consumer {
  readonly #storage: SqliteStorage;
  readonly #client: Client;
  readonly #settings: ConsumerSettings;
  readonly #cells: Int32Array;
  readonly #id: number;
  readonly #onClose: () => void;
  /** The deliveries of each slot: the last one, and perhaps one before it that could not be settled yet. */
  readonly #held: Lease[][];
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
    this.#held = Array.from(this.#cells, () => []);
    this.#onClose = onClose;
    this.#id = client.consume({
      settings,
      held: () => this.#held.flatMap((leases, slot) => leases.map(({ id, receipt }) => ({ id, receipt, slot }))),
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
    if (delivery !== undefined) this.#held[slot]?.push(delivery);
    return delivery;
  }

  start(slot: number, { receipt }: Lease): boolean {
    // The lease may have been lost while the payload was decoded.
    if (!this.#held[slot]?.some((held) => held.receipt === receipt)) return false;
    const started = cellTime(monotonicMs());
    if (Atomics.compareExchange(this.#cells, slot, SLOT.waiting, started) === SLOT.waiting) return true;
    this.#forgetIn(slot, receipt);
    return false;
  }

  settle(slot: number, lease: Lease, move: Settlement): Promise<JobState> {
    return onceOver(this.#storage.settleHeld(lease, move), () => this.#forgetIn(slot, lease.receipt));
  }

  forget(receipt: string): void {
    for (let slot = 0; slot < this.#held.length; slot++) this.#forgetIn(slot, receipt);
  }

  #forgetIn(slot: number, receipt: string): void {
    const leases = this.#held[slot] ?? [];
    const index = leases.findIndex((held) => held.receipt === receipt);
    if (index >= 0) leases.splice(index, 1);
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
        this.forget(receipt);
        listener.overdue(receipt);
        break;
      case "lost":
        this.forget(receipt);
        listener.leaseLost(receipt);
        break;
    }
  }
}
