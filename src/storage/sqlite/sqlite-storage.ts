import path from "node:path";
import { QueueClosedError, StorageError } from "../../errors.ts";
import type { JobState } from "../../state.ts";
import type { BackupReport, BackupRequest, IntegrityCheck, IntegrityReport } from "../care.ts";
import { longestRunning } from "../running.ts";
import { onceOver, type SlotClaim, SlotConsumer } from "../slot-consumer.ts";
import type {
  ClaimRequest,
  Consumer,
  ConsumerListener,
  ConsumerSettings,
  Delivery,
  Enqueued,
  Entry,
  Envelope,
  FailedRecord,
  FailedRequest,
  FailedSelection,
  JobKey,
  JobRecord,
  Lease,
  ListRequest,
  PurgeRequest,
  QueueCounts,
  QueueStats,
  Retention,
  Settlement,
  Storage,
  StorageDiagnostics,
  StorageSettings,
  Wait,
} from "../storage.ts";
import { Tally } from "../tally.ts";
import { monotonicMs } from "../thread-clock.ts";
import { weightOf, weightOfEvents } from "../weight.ts";
import { Client } from "./client.ts";
import { readGauges } from "./gauges.ts";
import {
  type AlterCommand,
  type Answer,
  type AnswerOf,
  CLOSING,
  type ClaimCommand,
  type DispatchCommand,
  type ExtendCommand,
  type NewJob,
  type Origin,
  type PutCommand,
  type ReclaimCommand,
  type SettleCommand,
  type StatsCommand,
  type SweepCommand,
} from "./protocol.ts";
import type { Demand } from "./request.ts";
import type { TaskInput, TaskName, TaskResult } from "./side.ts";

/** How long an operation without a time-out of its own waits for the database's lock. */
const LOCK_MS = 30_000;
/** What does not wait still gives a writer that is just committing this long. */
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
  readonly #retention: Retention | undefined;
  readonly #consumers = new Set<SlotConsumer>();
  readonly #underWay = new Tally();
  /** No put waits for room any more. */
  #hasty = false;
  /** Ends long tasks. */
  readonly #ending = new AbortController();
  #client: Client | undefined;
  #closing: Promise<void> | undefined;

  constructor(
    directory: string,
    { queue, fsync = false, text = false, maxPendingJobs: maxPending, retention }: StorageSettings,
  ) {
    this.#directory = directory;
    this.#retention = retention;
    this.#origin = { session: ++sessions, queue, fsync, text, maxPending };
  }

  put(entries: readonly Entry[], { timeoutMs, signal }: Wait): Promise<Enqueued[]> {
    const jobs = entries.map(ownJob);
    const bytes = weightOf(jobs);
    const lockMs = timeoutMs === 0 ? LOOK_LOCK_MS : (timeoutMs ?? LOCK_MS);
    const command: PutCommand = {
      op: "put",
      id: 0,
      origin: this.#origin,
      lockMs,
      bytes,
      entries: jobs,
      waitMs: undefined,
    };
    if (command.origin.maxPending !== undefined) {
      command.waitMs = this.#hasty ? CLOSING : (timeoutMs ?? Number.POSITIVE_INFINITY);
    }
    return this.#request({ command, bytes, patienceMs: lockMs, signal, read: put });
  }

  dispatch(envelopes: readonly Envelope[]): Promise<Enqueued[][]> {
    const [origin, events, bytes] = [this.#origin, [...envelopes], weightOfEvents(envelopes)];
    const command: DispatchCommand = { op: "dispatch", id: 0, origin, lockMs: LOCK_MS, bytes, events };
    return this.#request({ command, bytes, patienceMs: LOCK_MS, read: dispatched });
  }

  claim({ limit, leaseMs, timeoutMs, signal }: ClaimRequest): Promise<Delivery[]> {
    return this.claimFor({ limit, leaseMs, waitMs: timeoutMs ?? Number.POSITIVE_INFINITY }, signal);
  }

  /** As `claim`, also for a consumer's slot. */
  async claimFor(claim: SlotClaim, signal: AbortSignal | undefined): Promise<Delivery[]> {
    const { waitMs } = claim;
    const askedAt = monotonicMs();
    const lockMs = waitMs === 0 ? LOOK_LOCK_MS : Math.min(waitMs, LOCK_MS);
    const command: ClaimCommand = { op: "claim", id: 0, origin: this.#origin, lockMs, ...claim };
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
    const command = this.#settlement(lease, move, LOCK_MS);
    return this.#request({ command, bytes: command.emit?.bytes ?? 0, patienceMs: LOCK_MS, read: settled });
  }

  #settlement({ id, receipt }: Lease, move: Settlement, lockMs: number): SettleCommand {
    const settlement = { op: "settle", id: 0, origin: this.#origin, lockMs, lease: { id, receipt } } as const;
    if (move.event !== "ack" || move.emit === undefined || move.emit.length === 0) return { ...settlement, move };
    const emit = { events: [...move.emit], bytes: weightOfEvents(move.emit) };
    return { ...settlement, move: { event: "ack" }, emit };
  }

  extend({ id, receipt }: Lease, ms: number): Promise<number> {
    const lease = { id, receipt };
    const command: ExtendCommand = { op: "extend", id: 0, origin: this.#origin, lockMs: LOCK_MS, lease, ms };
    return this.#request({ command, patienceMs: LOCK_MS, read: extended });
  }

  reclaim(): Promise<number> {
    const command: ReclaimCommand = { op: "reclaim", id: 0, origin: this.#origin, lockMs: LOCK_MS };
    return this.#request({ command, patienceMs: LOCK_MS, read: reclaimed });
  }

  async remove(id: number): Promise<boolean> {
    return (await this.#alter("remove", id)) > 0;
  }

  retryFailed(which: FailedSelection): Promise<number> {
    return "id" in which ? this.#alter("replay", which.id) : this.#sweep({ kind: "retryFailed", ...which });
  }

  purgeFailed(which: FailedSelection): Promise<number> {
    return "id" in which ? this.#alter("discard", which.id) : this.#sweep({ kind: "purgeFailed", ...which });
  }

  purge({ olderThanMs, includeFailed }: PurgeRequest): Promise<number> {
    return this.#sweep({ kind: "purge", olderThanMs, includeFailed });
  }

  #alter(verb: AlterCommand["verb"], job: number): Promise<number> {
    const command: AlterCommand = { op: "alter", id: 0, origin: this.#origin, lockMs: LOCK_MS, verb, job };
    return this.#request({ command, patienceMs: LOCK_MS, read: changed });
  }

  #sweep(sweep: SweepCommand["sweep"]): Promise<number> {
    const command: SweepCommand = { op: "sweep", id: 0, origin: this.#origin, lockMs: LOCK_MS, sweep };
    return this.#request({ command, patienceMs: LOCK_MS, read: changed });
  }

  stats(): Promise<QueueStats> {
    const command: StatsCommand = { op: "stats", id: 0, origin: this.#origin, lockMs: LOCK_MS };
    return this.#request({ command, patienceMs: LOCK_MS, read: stats });
  }

  queues(prefix: string): Promise<QueueCounts[]> {
    return this.#look("queues", { prefix });
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
    const onWire = { ...settings, queue, fsync, retention: this.#retention, cells };
    const consumer = new SlotConsumer(this, onWire, listener, this.#open(), () => this.#consumers.delete(consumer));
    this.#consumers.add(consumer);
    return consumer;
  }

  stopWaiting(): void {
    if (this.#hasty || this.#origin.maxPending === undefined) return;
    this.#hasty = true;
    this.#client?.stopWaiting(this.#origin.session);
  }

  close(): Promise<void> {
    this.stopWaiting();
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
const dispatched = (answer: AnswerOf<"dispatched">): Enqueued[][] => answer.dispatched;
const claimed = (answer: AnswerOf<"claimed">): Delivery[] => answer.claimed;
const settled = (answer: AnswerOf<"settled">): JobState => answer.settled;
const extended = (answer: AnswerOf<"extended">): number => answer.extended;
const reclaimed = (answer: AnswerOf<"reclaimed">): number => answer.reclaimed;
const changed = (answer: AnswerOf<"changed">): number => answer.changed;
const stats = (answer: AnswerOf<"stats">): QueueStats => answer.stats;

/** The job as it will be stored, whatever the caller does to its buffer after the call. */
function ownJob({ payload, jobId, delayMs, maxAttempts, context }: Entry): NewJob {
  const own = typeof payload === "string" ? payload : Uint8Array.prototype.slice.call(payload);
  return { payload: own, jobId: jobId ?? null, delayMs, maxAttempts, context };
}
