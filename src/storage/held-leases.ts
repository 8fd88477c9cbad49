import { elapsedSince, SLOT } from "./handler-cells.ts";
import type { ConsumerOnWire, LeaseNews } from "./slot-consumer.ts";
import type { Lease } from "./storage.ts";

/** Without a sign of life from the client for this long, its leases are left to expire. */
const ABANDONED_MS = 15 * 60_000;
/** How often to look whether it is back. */
const ABANDONED_POLL_MS = 1000;

/** A consumer, as the thread that renews its leases knows it. */
export interface LeaseHolder {
  readonly id: number;
  readonly settings: ConsumerOnWire;
  readonly cells: Int32Array;
  /** The receipt of the delivery that each slot was given last. */
  readonly occupants: string[];
}

export interface HeldLease extends Lease {
  readonly consumer: LeaseHolder;
  readonly slot: number;
  /** Times are of the monotonic clock. */
  renewAt: number;
  /** When to look at the handler's time, or infinity. */
  timeoutAt: number;
  timedOut: boolean;
  /** When the lease ends unless it is renewed. */
  endsAt: number;
}

/**
 * The leases that are renewed on a thread of their own: a handler that blocks the event loop keeps its lease, and a
 * process that dies loses it. It also keeps the handlers' time. How a lease is renewed is the database's affair.
 */
export class HeldLeases {
  protected readonly monotonic: () => number;
  readonly #tell: (news: LeaseNews) => void;
  readonly #held = new Map<string, HeldLease>();
  /** The earliest moment at which there is something to do; possibly too early, never too late. */
  #nextAt = Number.POSITIVE_INFINITY;

  constructor(monotonic: () => number, tell: (news: LeaseNews) => void) {
    this.monotonic = monotonic;
    this.#tell = tell;
  }

  get size(): number {
    return this.#held.size;
  }

  get nextAt(): number {
    return this.#nextAt;
  }

  /** `timeoutAt` is when to look at the handler's time first, if it may have been running for a while. */
  add(lease: Lease, consumer: LeaseHolder, slot: number, timeoutAt?: number): void {
    const now = this.monotonic();
    const { leaseMs, heartbeatMs, timeoutMs } = consumer.settings;
    const held: HeldLease = {
      id: lease.id,
      receipt: lease.receipt,
      consumer,
      slot,
      renewAt: heartbeatMs === false ? Number.POSITIVE_INFINITY : now + heartbeatMs,
      timeoutAt: timeoutMs === undefined ? Number.POSITIVE_INFINITY : (timeoutAt ?? now + timeoutMs),
      timedOut: false,
      endsAt: now + leaseMs,
    };
    this.#held.set(lease.receipt, held);
    consumer.occupants[slot] = lease.receipt;
    this.#schedule(held);
  }

  /** What the slot's cell says is about this delivery, not about a later one. */
  #occupies({ consumer, slot, receipt }: HeldLease): boolean {
    return consumer.occupants[slot] === receipt;
  }

  delete(receipt: string): void {
    this.#held.delete(receipt);
  }

  /** The holder itself moved the end of its lease. */
  extended(receipt: string, ms: number): void {
    const held = this.#held.get(receipt);
    if (held === undefined) return;
    held.endsAt = this.monotonic() + ms;
    if (held.consumer.settings.heartbeatMs !== false) held.renewAt = Math.min(held.renewAt, this.monotonic() + ms / 3);
    this.#schedule(held);
  }

  dismiss(consumer: number): void {
    for (const held of this.#held.values()) if (held.consumer.id === consumer) this.#held.delete(held.receipt);
  }

  /** After a long sleep every lease is over: all are renewed before anything else. */
  renewAllAt(now: number): void {
    for (const held of this.#held.values()) {
      if (held.renewAt !== Number.POSITIVE_INFINITY) held.renewAt = now;
    }
    this.#nextAt = Math.min(this.#nextAt, now);
  }

  /** Keeps the handlers' time; takes out those whose grace is over too, which are no longer renewed. */
  takeOverdue(now: number): HeldLease[] {
    if (now < this.#nextAt) return [];
    const overdue = [...this.#held.values()].filter((held) => this.#keepTime(held, now));
    for (const { receipt } of overdue) this.#held.delete(receipt);
    return overdue;
  }

  /** What is to be renewed now; tells of leases that nobody renews and that are over. */
  dueForRenewal(now: number, clientSilentMs: number): HeldLease[] {
    if (now < this.#nextAt) return [];
    this.#nextAt = Number.POSITIVE_INFINITY;
    const due: HeldLease[] = [];
    for (const held of this.#held.values()) {
      const abandoned = clientSilentMs >= ABANDONED_MS;
      if (held.renewAt <= now && abandoned)
        this.#nextAt = Math.min(this.#nextAt, held.timeoutAt, now + ABANDONED_POLL_MS);
      else if (held.renewAt <= now) due.push(held);
      else if (held.endsAt <= now) this.#lost(held);
      else this.#schedule(held);
    }
    if (due.length > 0) this.#nextAt = now;
    return due;
  }

  /** What came of a renewal, committed; `undefined` = the lease is lost. */
  renewed(held: HeldLease, leaseUntil: number | undefined): void {
    if (!this.#held.has(held.receipt)) return;
    if (leaseUntil === undefined) {
      this.#lost(held);
      return;
    }
    const now = this.monotonic();
    held.renewAt = now + (held.consumer.settings.heartbeatMs || held.consumer.settings.leaseMs);
    held.endsAt = now + held.consumer.settings.leaseMs;
    this.#schedule(held);
    this.#tell({ consumer: held.consumer.id, receipt: held.receipt, news: "renewed", leaseUntil });
  }

  /** A renewal failed. It is tried again soon: the lease still stands for a while, and an expired one can be revived. */
  postpone(held: HeldLease, ms: number): void {
    held.renewAt = this.monotonic() + ms;
    this.#schedule(held);
  }

  /** Takes over the deliveries that a stalled client was given and never started. */
  takeUnstarted(): HeldLease[] {
    const unstarted = [...this.#held.values()].filter(
      (held) =>
        this.#occupies(held) &&
        Atomics.compareExchange(held.consumer.cells, held.slot, SLOT.waiting, SLOT.returned) === SLOT.waiting,
    );
    for (const { receipt } of unstarted) this.#held.delete(receipt);
    return unstarted;
  }

  /** Tells of a handler's time-out; returns whether its grace is over too. */
  #keepTime(held: HeldLease, now: number): boolean {
    const { timeoutMs, graceMs } = held.consumer.settings;
    if (timeoutMs === undefined || held.timeoutAt > now) return false;
    const cell = this.#occupies(held) ? Atomics.load(held.consumer.cells, held.slot) : SLOT.ended;
    if (cell === SLOT.ended) {
      // Only the settlement is still under way.
      held.timeoutAt = Number.POSITIVE_INFINITY;
      return false;
    }
    const ran = cell > 0 ? elapsedSince(cell, now) : 0;
    if (ran < timeoutMs) {
      held.timeoutAt = now + timeoutMs - ran;
      return false;
    }
    if (!held.timedOut) {
      held.timedOut = true;
      held.timeoutAt = now + timeoutMs - ran + graceMs;
      this.#tell({ consumer: held.consumer.id, receipt: held.receipt, news: "timedOut" });
    }
    if (held.timeoutAt > now) return false;
    this.#tell({ consumer: held.consumer.id, receipt: held.receipt, news: "overdue" });
    return true;
  }

  #lost(held: HeldLease): void {
    this.#held.delete(held.receipt);
    this.#tell({ consumer: held.consumer.id, receipt: held.receipt, news: "lost" });
  }

  #schedule(held: HeldLease): void {
    this.#nextAt = Math.min(this.#nextAt, held.renewAt, held.timeoutAt, held.endsAt);
  }
}
