import { onAbort, unlessAborted } from "../../abort.ts";
import { QueueClosedError, StorageError } from "../../errors.ts";
import type { JobState } from "../../state.ts";
import { monotonicNow } from "../../timers.ts";
import type { BackupReport, BackupRequest, IntegrityCheck, IntegrityReport } from "../care.ts";
import type { PostgresTarget } from "../postgres-target.ts";
import { refusal } from "../refusals.ts";
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
import { weightOf, weightOfEvents } from "../weight.ts";
import type { AlterInput } from "./alterations.ts";
import { Care } from "./care.ts";
import type { Waiter } from "./claims.ts";
import { Client } from "./client.ts";
import type { DispatchResult } from "./dispatches.ts";
import type { HolderMove, HolderResult } from "./endings.ts";
import { Looking } from "./looking.ts";
import type { Origin } from "./order.ts";
import { ownJob } from "./puts.ts";
import { purge, purgeFailed, replayFailed, type SweepContext } from "./sweeps.ts";

/** How long an operation without a time-out of its own waits for a lock, or for a server that was there before. */
const LOCK_MS = 30_000;
/** What does not wait still gives a writer that is just committing this long. */
const LOOK_LOCK_MS = 50;

export function openPostgresStorage(target: PostgresTarget, settings: StorageSettings): Storage {
  return new PostgresStorage(target, settings);
}

class PostgresStorage implements Storage {
  readonly #target: PostgresTarget;
  readonly #origin: Origin;
  readonly #retention: Retention | undefined;
  readonly #consumers = new Set<SlotConsumer>();
  readonly #underWay = new Tally();
  /** No put waits for room any more. */
  #hasty = false;
  /** Ends what goes on for long. */
  readonly #ending = new AbortController();
  #client: Client | undefined;
  #closing: Promise<void> | undefined;

  constructor(target: PostgresTarget, { queue, fsync, text = false, maxPendingJobs, retention }: StorageSettings) {
    this.#target = target;
    this.#retention = retention;
    this.#origin = { queue, fsync, text, maxPending: maxPendingJobs, tally: this.#underWay };
  }

  async put(entries: readonly Entry[], { timeoutMs, signal }: Wait): Promise<Enqueued[]> {
    const jobs = entries.map(ownJob);
    const lockMs = timeoutMs === 0 ? LOOK_LOCK_MS : (timeoutMs ?? LOCK_MS);
    const demand = { input: jobs, bytes: weightOf(jobs), lockMs, signal };
    const client = this.#open();
    const { maxPending } = this.#origin;
    if (maxPending === undefined) return await client.request(client.puts, this.#origin, demand);
    const roomBy = monotonicNow() + (timeoutMs ?? Number.POSITIVE_INFINITY);
    const origin = this.#origin as Origin & { readonly maxPending: number };
    return await client.requestRoom(origin, demand, { roomBy, closing: this.#hasty });
  }

  async dispatch(envelopes: readonly Envelope[]): Promise<Enqueued[][]> {
    return (await this.#dispatch(envelopes)).dispatched;
  }

  async #dispatch(envelopes: readonly Envelope[], lease?: Lease, reviveMs?: number): Promise<DispatchResult> {
    const client = this.#open();
    const input = { events: [...envelopes], lease, reviveMs };
    const demand = { input, bytes: weightOfEvents(envelopes), lockMs: LOCK_MS };
    return await client.request(client.dispatches, this.#origin, demand);
  }

  claim({ limit, leaseMs, timeoutMs, signal }: ClaimRequest): Promise<Delivery[]> {
    return this.claimFor({ limit, leaseMs, waitMs: timeoutMs ?? Number.POSITIVE_INFINITY }, signal);
  }

  /** As `claim`, also for a consumer's slot. */
  async claimFor(claim: SlotClaim, signal: AbortSignal | undefined): Promise<Delivery[]> {
    const client = this.#open();
    const askedAt = monotonicNow();
    this.#underWay.begin();
    try {
      const ready = claim.consumer === undefined ? undefined : client.keeper.readyFor(claim.consumer);
      if (ready !== undefined) await unlessAborted(unlessAborted(ready, signal), this.#ending.signal);
      const { rows, claimedAt } = await this.#wait(client, claim, signal);
      const deliveries = await this.#inTime(rows, claim, claimedAt);
      // What was claimed may be lost again before it could be handed out; who has time left waits on.
      const leftMs = claim.waitMs - (monotonicNow() - askedAt);
      if (deliveries.length === 0 && rows.length > 0 && leftMs > 0) {
        return await this.claimFor({ ...claim, waitMs: leftMs }, signal);
      }
      const reason = signal?.aborted ? signal.reason : this.#closing && refusal("closed", undefined);
      if (reason === undefined || deliveries.length === 0) return deliveries;
      // It lost its race against the claim: nobody will take these.
      await Promise.allSettled(deliveries.map((delivery) => this.#giveBack(client, delivery)));
      throw reason;
    } finally {
      this.#underWay.end();
    }
  }

  #wait(
    client: Client,
    { limit, leaseMs, waitMs, consumer, slot = 0 }: SlotClaim,
    signal: AbortSignal | undefined,
  ): Promise<{ rows: Delivery[]; claimedAt: number }> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) throw signal.reason;
      const { queue } = this.#origin;
      const abort = (): void => client.withdrawClaims(queue, (each) => each === waiter, signal?.reason);
      const forget = signal && onAbort(signal, abort);
      const waiter: Waiter = {
        origin: this.#origin,
        limit,
        leaseMs,
        budget: consumer === undefined ? undefined : client.keeper.settingsOf(consumer)?.maxAttempts,
        endsAt: monotonicNow() + waitMs,
        lockMs: waitMs === 0 ? LOOK_LOCK_MS : Math.min(waitMs, LOCK_MS),
        withdrawn: undefined,
        gaveUpAt: undefined,
        deliver: (rows, claimedAt) => {
          forget?.();
          if (consumer !== undefined && rows.length > 0) client.keeper.hold(consumer, slot, rows);
          resolve({ rows, claimedAt });
        },
        fail: (reason) => {
          forget?.();
          reject(reason);
        },
      };
      client.claim(waiter);
    });
  }

  /** If COMMIT took much of the new leases, they are renewed before anybody sees them. */
  async #inTime(rows: Delivery[], { leaseMs }: SlotClaim, claimedAt: number): Promise<Delivery[]> {
    if (rows.length === 0 || monotonicNow() - claimedAt <= leaseMs / 2) return rows;
    const revived = await Promise.allSettled(rows.map((row) => this.#hold(row, { event: "revive", ms: leaseMs })));
    return rows.flatMap((row, index) => {
      const end = revived[index];
      return end?.status === "fulfilled" ? [{ ...row, leaseUntil: end.value.leaseUntil }] : [];
    });
  }

  async #giveBack(client: Client, { id, receipt }: Lease): Promise<void> {
    const input = { lease: { id, receipt }, move: { event: "release" } as const };
    // Whatever becomes of that, nobody renews it any more.
    client.keeper.release(receipt);
    await client.request(client.endings, this.#origin, { input, lockMs: LOCK_MS });
  }

  settle(lease: Lease, move: Settlement): Promise<JobState> {
    const settling = this.settleHeld(lease, move);
    if (this.#consumers.size === 0) return settling;
    return onceOver(settling, () => {
      for (const consumer of this.#consumers) consumer.forget(lease.receipt);
    });
  }

  /** As `settle`, for a consumer that keeps account of its deliveries itself. */
  settleHeld({ id, receipt }: Lease, move: Settlement, consumer?: ConsumerSettings): Promise<JobState> {
    const lease = { id, receipt };
    const reviveMs = consumer?.heartbeatMs === false ? undefined : consumer?.leaseMs;
    return onceOver(this.#settle(lease, move, reviveMs), () => this.#client?.keeper.release(receipt));
  }

  async #settle(lease: Lease, move: Settlement, reviveMs: number | undefined): Promise<JobState> {
    if (move.event === "ack" && move.emit !== undefined && move.emit.length > 0) {
      const { state } = await this.#dispatch(move.emit, lease, reviveMs);
      // Who waits for it is at work before this handler is done: a chain of events has no gap in which all seem idle.
      await this.#client?.served(move.emit.flatMap(({ queues }) => queues));
      return state;
    }
    const { state, dueAt } = await this.#hold(lease, move, reviveMs);
    if (move.event === "release" && move.backoff !== undefined && state === "ready") {
      this.#client?.left(this.#origin.queue, dueAt);
    }
    return state;
  }

  async #hold(lease: Lease, move: HolderMove, reviveMs?: number): Promise<HolderResult> {
    const client = this.#open();
    const { id, receipt } = lease;
    const demand = { input: { lease: { id, receipt }, move, reviveMs }, lockMs: LOCK_MS };
    const { queue } = this.#origin;
    const returns = move.event === "nack" || move.event === "release";
    if (!returns) return await client.request(client.endings, this.#origin, demand);
    return await client.returning(queue, client.request(client.endings, this.#origin, demand));
  }

  async extend({ id, receipt }: Lease, ms: number): Promise<number> {
    const { leaseUntil } = await this.#hold({ id, receipt }, { event: "extend", ms });
    this.#client?.keeper.extended(receipt, ms);
    return leaseUntil;
  }

  reclaim(): Promise<number> {
    return this.#alter({ verb: "reclaim" });
  }

  async remove(id: number): Promise<boolean> {
    return (await this.#alter({ verb: "remove", id })) > 0;
  }

  retryFailed(which: FailedSelection): Promise<number> {
    if ("id" in which) return this.#alter({ verb: "replay", id: which.id });
    return this.#sweep((context) => replayFailed(context, which, this.#origin.maxPending));
  }

  purgeFailed(which: FailedSelection): Promise<number> {
    if ("id" in which) return this.#alter({ verb: "discard", id: which.id });
    return this.#sweep((context) => purgeFailed(context, which));
  }

  purge(request: PurgeRequest): Promise<number> {
    return this.#sweep((context) => purge(context, request));
  }

  async #alter(input: AlterInput): Promise<number> {
    const client = this.#open();
    return await client.request(client.alterations, this.#origin, { input, lockMs: LOCK_MS });
  }

  #sweep(work: (context: SweepContext) => Promise<number>): Promise<number> {
    return this.#during((client) => {
      const { queue } = this.#origin;
      const changed = (): void => client.swept(queue);
      return work({ runner: client.runner, sql: client.sql, queue, changed, signal: this.#ending.signal });
    });
  }

  async stats(): Promise<QueueStats> {
    return await this.#look((looking) => looking.stats(this.#origin.queue));
  }

  queues(prefix: string): Promise<QueueCounts[]> {
    return this.#look((looking) => looking.queues(prefix));
  }

  find(by: JobKey): Promise<JobRecord | undefined> {
    return this.#look((looking) => looking.find(this.#origin.queue, by));
  }

  list(which: ListRequest): Promise<JobRecord[]> {
    return this.#look((looking) => looking.list(this.#origin.queue, which));
  }

  listFailed(which: FailedRequest): Promise<FailedRecord[]> {
    return this.#look((looking) => looking.listFailed(this.#origin.queue, which));
  }

  diagnostics(): Promise<StorageDiagnostics> {
    return this.#during((client) => new Care(client, this.#target).diagnostics(this.#origin, LOCK_MS));
  }

  #look<T>(look: (looking: Looking) => Promise<T>): Promise<T> {
    return this.#during(async (client) => {
      await client.passed();
      return await look(new Looking(client, this.#target.schema));
    });
  }

  checkIntegrity(check: IntegrityCheck): Promise<IntegrityReport> {
    return this.#during((client) => new Care(client, this.#target).check(check, this.#ending.signal));
  }

  async backup(_: BackupRequest): Promise<BackupReport> {
    this.#open();
    throw new StorageError(
      "BAD_LOCATION",
      "A queue on PostgreSQL is backed up with the database: use pg_dump, or what your provider offers.",
    );
  }

  vacuum(): Promise<void> {
    return this.#during((client) => new Care(client, this.#target).vacuum(this.#ending.signal));
  }

  async #during<T>(work: (client: Client) => Promise<T>): Promise<T> {
    const client = this.#open();
    this.#underWay.begin();
    try {
      return await work(client);
    } finally {
      this.#underWay.end();
    }
  }

  consume(settings: ConsumerSettings, listener: ConsumerListener): Consumer {
    const { queue, fsync = false } = this.#origin;
    const client = this.#open();
    const cells = new SharedArrayBuffer(settings.slots * 4);
    const onWire = { ...settings, queue, fsync, retention: this.#retention, cells };
    const consumer = new SlotConsumer(this, onWire, listener, client.keeper, () => this.#consumers.delete(consumer));
    this.#consumers.add(consumer);
    client.chores.consumerCame();
    return consumer;
  }

  stopWaiting(): void {
    if (this.#hasty || this.#origin.maxPending === undefined) return;
    this.#hasty = true;
    this.#client?.stopWaiting(this.#origin);
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
    client.closeSession(this.#origin);
    this.#ending.abort(new QueueClosedError("The queue was closed."));
    await this.#underWay.idle();
    await client.release();
  }

  #open(): Client {
    if (this.#closing !== undefined) throw new QueueClosedError("The queue was closed.");
    this.#client ??= Client.acquire(this.#target);
    return this.#client;
  }
}
