import type { Lease } from "../storage.ts";
import type { Step } from "./group-commit.ts";
import { type ConsumerOnWire, elapsedSince, type LeaseNews, SLOT } from "./protocol.ts";
import type { Transitions } from "./transitions.ts";

/** Without a sign of life from the client for this long, its leases are left to expire. */
const ABANDONED_MS = 15 * 60_000;
/** How often to look whether it is back. */
const ABANDONED_POLL_MS = 1000;

export interface EngineConsumer {
  readonly id: number;
  readonly settings: ConsumerOnWire;
  readonly cells: Int32Array;
  /** The receipt of the delivery that each slot was given last. */
  readonly occupants: string[];
}

export interface HeldLease extends Lease {
  readonly consumer: EngineConsumer;
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
 * The leases that are renewed here, on the engine's thread: a handler that blocks the event loop keeps its lease, and
 * a process that dies loses it. It also keeps the handlers' time.
 */
export class Leases {
  readonly #monotonic: () => number;
  readonly #tell: (news: LeaseNews) => void;
  readonly #held = new Map<string, HeldLease>();
  /** The earliest moment at which there is something to do; possibly too early, never too late. */
  #nextAt = Number.POSITIVE_INFINITY;

  constructor(monotonic: () => number, tell: (news: LeaseNews) => void) {
    this.#monotonic = monotonic;
    this.#tell = tell;
  }

  get size(): number {
    return this.#held.size;
  }

  get nextAt(): number {
    return this.#nextAt;
  }

  /** `timeoutAt` is when to look at the handler's time first, if it may have been running for a while. */
  add(lease: Lease, consumer: EngineConsumer, slot: number, timeoutAt?: number): void {
    const now = this.#monotonic();
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
    held.endsAt = this.#monotonic() + ms;
    if (held.consumer.settings.heartbeatMs !== false) held.renewAt = Math.min(held.renewAt, this.#monotonic() + ms / 3);
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

  /** Keeps the handlers' time; returns steps for those whose grace is over too, which are no longer renewed. */
  overdueSteps(now: number): Step[] {
    if (now < this.#nextAt) return [];
    const overdue = [...this.#held.values()].filter((held) => this.#keepTime(held, now));
    for (const { receipt } of overdue) this.#held.delete(receipt);
    return overdue.map((held) => new OverdueStep(held));
  }

  /** Renews what is due, in one step; tells of leases that nobody renews and that are over. */
  renewalStep(now: number, clientSilentMs: number): Step | undefined {
    if (now < this.#nextAt) return undefined;
    this.#nextAt = Number.POSITIVE_INFINITY;
    const due: HeldLease[] = [];
    for (const held of this.#held.values()) {
      const abandoned = clientSilentMs >= ABANDONED_MS;
      if (held.renewAt <= now && abandoned)
        this.#nextAt = Math.min(this.#nextAt, held.timeoutAt, now + ABANDONED_POLL_MS);
      else if (held.renewAt <= now) due.push(held);
      else if (held.endsAt <= now && held.renewAt > now) this.#lost(held);
      else this.#schedule(held);
    }
    if (due.length === 0) return undefined;
    this.#nextAt = now;
    return this.#renewStep(due);
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

  #renewStep(due: readonly HeldLease[]): Step {
    const untils = new Map<HeldLease, number | undefined>();
    return {
      fsync: false,
      compound: false,
      execute: (transitions) => {
        for (const held of due) {
          const { queue, leaseMs } = held.consumer.settings;
          untils.set(held, transitions.renew(queue, held, leaseMs));
        }
      },
      succeed: () => {
        const now = this.#monotonic();
        for (const [held, leaseUntil] of untils) {
          if (!this.#held.has(held.receipt)) continue;
          if (leaseUntil === undefined) {
            this.#lost(held);
            continue;
          }
          held.renewAt = now + (held.consumer.settings.heartbeatMs || held.consumer.settings.leaseMs);
          held.endsAt = now + held.consumer.settings.leaseMs;
          this.#schedule(held);
          this.#tell({ consumer: held.consumer.id, receipt: held.receipt, news: "renewed", leaseUntil });
        }
      },
      /** Tried again soon: the leases still stand for a while, and an expired one can be revived. */
      fail: ({ code }) => {
        for (const held of due) {
          held.renewAt = this.#monotonic() + (code === "DISK_FULL" ? 250 : 100);
          this.#schedule(held);
        }
      },
    };
  }

  #lost(held: HeldLease): void {
    this.#held.delete(held.receipt);
    this.#tell({ consumer: held.consumer.id, receipt: held.receipt, news: "lost" });
  }

  #schedule(held: HeldLease): void {
    this.#nextAt = Math.min(this.#nextAt, held.renewAt, held.timeoutAt, held.endsAt);
  }
}

/** A handler overran its time and does not come back: should its lease end, the dead letter says why. */
class OverdueStep implements Step {
  readonly fsync = false;
  readonly compound = false;
  readonly #held: HeldLease;

  constructor(held: HeldLease) {
    this.#held = held;
  }

  execute(transitions: Transitions): void {
    transitions.markOverdue(this.#held.consumer.settings.queue, this.#held);
  }

  succeed(): void {}
  fail(): void {}
}
