import type { StorageError } from "../../errors.ts";
import { clearInterval, clearTimeout, monotonicNow, queueMicrotask, setInterval, setTimeout } from "../../timers.ts";
import { HeadStarts } from "../head-start.ts";
import type { Delivery } from "../storage.ts";
import { toStorageError } from "./failures.ts";
import { CONNECTING_MS, type Origin, tooBusy } from "./order.ts";
import { payloadOf } from "./payloads.ts";
import type { Row } from "./rows.ts";
import { firstPause, longer, pauseFor, type Runner, type Trouble, troubleOf } from "./runner.ts";
import { SLICE, type Statements } from "./statements.ts";
import type { Transaction } from "./transaction.ts";

/** So many callers, or jobs, are served by one transaction. */
const MOST_WAITERS = 1000;
const MOST_JOBS = 5000;
/** How often to look whether somebody who waits for a connection gives up,. */
const PATIENCE_MS = 100;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A claim that has not been answered yet. Times are by the monotonic clock. */
export interface Waiter {
  readonly origin: Origin;
  readonly limit: number;
  readonly leaseMs: number;
  /** Deliveries allowed in all, instead of those of the jobs. */
  readonly budget: number | undefined;
  /** When to stop waiting for work. */
  readonly endsAt: number;
  /** How long it may wait for a lock or the server. */
  readonly lockMs: number;
  /** Whether its caller will not take anything any more, and why. */
  withdrawn: { readonly reason: unknown } | undefined;
  /** Set while there is trouble: when to give up. */
  gaveUpAt: number | undefined;
  /** Takes over the leases before it answers. */
  readonly deliver: (rows: Delivery[], claimedAt: number) => void;
  readonly fail: (reason: unknown) => void;
}

/** What there is in a queue; times in milliseconds from now. */
export interface Outlook {
  readonly ready: boolean;
  readonly dueIn: number;
  readonly endsIn: number;
  /** By the clock of the database. */
  readonly now: number;
}

export interface QueueClaimsOptions {
  readonly queue: string;
  readonly runner: Runner;
  readonly sql: Statements;
  readonly look: (queue: string) => Promise<Outlook>;
  /** Resolves when jobs that this client gives back are there, unless that takes long. */
  readonly returned: (queue: string) => Promise<void> | undefined;
  /** Told after each transaction that moved jobs, what of the clock was seen in it, and whether leases were ended. */
  readonly claimed: (queue: string, now: number, moved: { ended: boolean; promoted: boolean }) => void;
}

interface Claimed {
  readonly served: Served[];
  readonly more: boolean;
  /** By the clock of the database, and no later than that by the monotonic clock. */
  readonly now: number;
  readonly claimedAt: number;
  /** Whether leases were ended, and delayed jobs made ready. */
  readonly ended: boolean;
  readonly promoted: boolean;
}

interface Served {
  readonly waiter: Waiter;
  readonly rows: Delivery[];
}

/** One queue's waiting claims, first come, first served. */
export class QueueClaims {
  readonly #options: QueueClaimsOptions;
  #waiters: Waiter[] = [];
  #underWay = new Set<Waiter>();
  /** Something may have become ready. */
  #check = false;
  #serving = false;
  #idle: (() => void)[] = [];
  /** When the next delayed job is due or the next lease ends, as far as is known. */
  #nextAt = Number.POSITIVE_INFINITY;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #headStarts = new HeadStarts();

  constructor(options: QueueClaimsOptions) {
    this.#options = options;
  }

  get waiting(): boolean {
    return this.#waiters.length > 0;
  }

  add(waiter: Waiter): void {
    this.#waiters.push(waiter);
    this.check();
  }

  /** There may be something to claim. */
  check(): void {
    this.#check = true;
    if (this.#serving || this.#waiters.length === 0) return;
    this.#serving = true;
    queueMicrotask(() => void this.#serve());
  }

  /** Resolves when those who wait now have got what there is. */
  async served(): Promise<void> {
    if (this.#serving) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  /** What a look showed; `undefined`: it failed, which whoever waits is to hear of. */
  see(outlook: Outlook | undefined): void {
    if (outlook === undefined || outlook.ready) {
      this.check();
      return;
    }
    this.#expect(outlook);
    if (!this.#serving) this.#plan();
  }

  /** This client gave a job back for others to take, which is due then, by the clock of the database. */
  left(dueAt: number): void {
    this.#headStarts.give(this.#options.queue, dueAt);
  }

  /** Ends waits at once; one that is just being served gets what it got, to be given back. */
  withdraw(which: (waiter: Waiter) => boolean, reason: unknown): void {
    for (const waiter of this.#waiters.filter(which)) {
      waiter.withdrawn ??= { reason };
      if (this.#underWay.has(waiter)) continue;
      this.#remove(waiter);
      waiter.fail(reason);
    }
    if (!this.#serving) this.#plan();
  }

  #remove(waiter: Waiter): void {
    const index = this.#waiters.indexOf(waiter);
    if (index >= 0) this.#waiters.splice(index, 1);
  }

  async #serve(): Promise<void> {
    for (let pause = firstPause(); this.#check && this.#waiters.length > 0; ) {
      await this.#options.returned(this.#options.queue);
      this.#check = false;
      const trouble = await this.#try();
      if (trouble === "gone") {
        await pauseFor(pause);
        pause = longer(pause);
      } else if (trouble === undefined) pause = firstPause();
    }
    this.#serving = false;
    for (const resolve of this.#idle.splice(0)) resolve();
    this.#plan();
  }

  /** One transaction for those who wait now. */
  async #try(): Promise<Trouble | undefined> {
    const batch = this.#batch();
    const startedAt = monotonicNow();
    for (const waiter of batch) waiter.gaveUpAt ??= startedAt + waiter.lockMs;
    const patience = setInterval(() => this.#giveUp(batch, startedAt), PATIENCE_MS);
    try {
      const { runner, claimed, queue } = this.#options;
      const attempt = {
        lockMs: Math.min(...batch.map(({ gaveUpAt = 0 }) => gaveUpAt - startedAt)),
        fsync: undefined,
        endsAt: () => startedAt + Math.max(...batch.map(({ lockMs }) => lockMs)),
      };
      const done = await runner.run(attempt, (transaction) => {
        // Some may have given up while a connection was waited for.
        const waiting = new Set(this.#waiters);
        const there = batch.filter((waiter) => waiting.has(waiter));
        this.#underWay = new Set(there);
        return this.#claim(transaction, there);
      });
      this.#underWay.clear();
      for (const waiter of this.#waiters) waiter.gaveUpAt = undefined;
      claimed(queue, done.now, done);
      this.#answer(done.served, done.claimedAt);
      if (done.more) this.#check = true;
      else if (this.#waiters.length > 0) await this.#look();
      this.#end(monotonicNow());
      return undefined;
    } catch (error) {
      this.#underWay.clear();
      return await this.#judge(error);
    } finally {
      clearInterval(patience);
    }
  }

  #batch(): Waiter[] {
    let jobs = 0;
    const end = this.#waiters.findIndex(({ limit }, index) => {
      jobs += limit;
      return index > 0 && (index === MOST_WAITERS || jobs > MOST_JOBS);
    });
    return end < 0 ? [...this.#waiters] : this.#waiters.slice(0, end);
  }

  /** Moves along what is due, then claims, for those who want it on the same terms by one statement. */
  async #claim(transaction: Transaction, batch: readonly Waiter[]): Promise<Claimed> {
    const { queue, sql } = this.#options;
    // Not when the answer was read, which may be late.
    const sentAt = monotonicNow();
    const budget = batch[0]?.budget ?? null;
    const stirring = transaction.query(sql.stir, [queue, budget, this.#headStarts.of(queue)]);
    const groups = groupsOf(batch);
    const served: Served[] = [];
    let exhausted = 0;
    let short = false;
    for (const group of groups) {
      // One after the other: what comes between two statements must not go to those who came later.
      const rows = await transaction.query(sql.claim, [queue, ...group.parameters]);
      while (group.budget !== undefined && rows.length < group.wanted) {
        // Some that it looked at may have used up its budget, and be in the way.
        const [spent] = await transaction.query(sql.exhaust, [queue, group.budget]);
        if (spent?.["exhausted"] === 0) break;
        exhausted += spent?.["exhausted"] as number;
        const [wanted, ...terms] = group.parameters;
        rows.push(...(await transaction.query(sql.claim, [queue, (wanted as number) - rows.length, ...terms])));
      }
      served.push(...share(group.waiters, rows));
      short = rows.length < group.wanted;
      if (short) break;
    }
    const [stirred] = await stirring;
    const { expired, promoted, now } = stirred as { expired: number; promoted: number; now: number };
    this.#headStarts.forget(queue, now);
    const more = !short || expired === SLICE || promoted === SLICE;
    return { served, more, now, claimedAt: sentAt, ended: expired + exhausted > 0, promoted: promoted > 0 };
  }

  #answer(served: readonly Served[], claimedAt: number): void {
    for (const { waiter, rows } of served) {
      if (rows.length === 0) continue;
      this.#remove(waiter);
      waiter.deliver(rows, claimedAt);
    }
  }

  /** Nothing more is there: when will there be? */
  async #look(): Promise<void> {
    const { look, queue } = this.#options;
    const outlook = await look(queue);
    this.#expect(outlook);
    if (outlook.ready) this.#check = true;
  }

  #expect({ dueIn, endsIn, now }: Outlook): void {
    const due = this.#headStarts.dueHere(this.#options.queue, now + dueIn) - now;
    this.#nextAt = monotonicNow() + Math.max(1, Math.min(due, endsIn));
  }

  /** Answers those whose time is up, and those who were withdrawn while they might still have been served. */
  #end(now: number): void {
    for (const waiter of this.#waiters.slice()) {
      if (this.#underWay.has(waiter)) continue;
      if (waiter.withdrawn === undefined && (this.#check || waiter.endsAt > now)) continue;
      this.#remove(waiter);
      if (waiter.withdrawn === undefined) waiter.deliver([], now);
      else waiter.fail(waiter.withdrawn.reason);
    }
  }

  /** After an attempt that failed. Whoever only looks is told, if there is nothing to be had anyway. */
  async #judge(error: unknown): Promise<Trouble> {
    const trouble = troubleOf(error);
    const { runner } = this.#options;
    const failure = toStorageError(error, runner.place);
    if (!runner.isTransient(trouble)) {
      this.#failAll(failure);
      return trouble;
    }
    this.#check = true;
    if (trouble === "locked") await this.#lookWhileLocked();
    const now = monotonicNow();
    for (const waiter of this.#check ? this.#waiters.slice() : []) this.#failLate(waiter, failure, now);
    this.#end(now);
    return trouble;
  }

  #failLate(waiter: Waiter, failure: StorageError, now: number): void {
    if (waiter.withdrawn !== undefined || (waiter.gaveUpAt ?? Number.POSITIVE_INFINITY) > now) return;
    this.#remove(waiter);
    waiter.fail(failure);
  }

  /** No connection can be had for an attempt. */
  #giveUp(batch: readonly Waiter[], startedAt: number): void {
    const now = monotonicNow();
    if (this.#underWay.size > 0 || now - startedAt < CONNECTING_MS) return;
    const waiting = new Set(this.#waiters);
    for (const waiter of batch) {
      if (waiting.has(waiter)) this.#failLate(waiter, tooBusy(this.#options.runner.place), now);
    }
  }

  async #lookWhileLocked(): Promise<void> {
    try {
      const { ready, dueIn, endsIn } = await this.#options.look(this.#options.queue);
      const next = Math.min(dueIn, endsIn);
      this.#check = ready || next <= 0;
      if (!this.#check) this.#nextAt = monotonicNow() + next;
    } catch {
      // The next attempt meets the same.
    }
  }

  #failAll(failure: StorageError): void {
    for (const waiter of this.#waiters.splice(0)) waiter.fail(failure);
    this.#check = false;
  }

  /** Wakes up when something is due, or somebody's time is up. */
  #plan(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#waiters.length === 0) return;
    const now = monotonicNow();
    const ends = this.#waiters.reduce((soonest, { endsAt }) => Math.min(soonest, endsAt), Number.POSITIVE_INFINITY);
    const ms = Math.min(LONGEST_TIMER_MS, Math.max(0, Math.ceil(Math.min(ends, this.#nextAt) - now)));
    this.#timer = setTimeout(() => this.#wake(), ms);
  }

  #wake(): void {
    if (this.#serving) return;
    const now = monotonicNow();
    if (this.#nextAt <= now) {
      this.#nextAt = Number.POSITIVE_INFINITY;
      this.check();
      return;
    }
    this.#end(now);
    this.#plan();
  }
}

interface Group {
  readonly waiters: Waiter[];
  readonly budget: number | undefined;
  wanted: number;
  readonly parameters: readonly [wanted: number, leaseMs: number, budget: number | null];
}

/** Those next to each other who want jobs on the same terms. */
function groupsOf(batch: readonly Waiter[]): Group[] {
  const groups: { waiters: Waiter[] }[] = [];
  for (const waiter of batch) {
    const first = groups.at(-1)?.waiters[0];
    if (first !== undefined && first.leaseMs === waiter.leaseMs && first.budget === waiter.budget) {
      groups.at(-1)?.waiters.push(waiter);
    } else groups.push({ waiters: [waiter] });
  }
  return groups.map(({ waiters }) => {
    const { leaseMs, budget } = waiters[0] as Waiter;
    const wanted = waiters.reduce((sum, { limit }) => sum + limit, 0);
    return { waiters, budget, wanted, parameters: [wanted, Math.round(leaseMs), budget ?? null] };
  });
}

function share(waiters: readonly Waiter[], rows: readonly Row[]): Served[] {
  let next = 0;
  return waiters.map((waiter) => {
    const own = rows.slice(next, next + waiter.limit);
    next += waiter.limit;
    return { waiter, rows: own.map((row) => deliveryOf(row, waiter.origin.text)) };
  });
}

function deliveryOf(row: Row, asText: boolean): Delivery {
  return {
    id: row["id"] as number,
    receipt: row["receipt"] as string,
    payload: payloadOf(row["payload"], asText),
    attempt: row["attempts"] as number,
    jobId: (row["job_id"] as string | null) ?? undefined,
    leaseUntil: row["lease_until"] as number,
    enqueuedAt: row["created_at"] as number,
    context: (row["trace_context"] as string | null) ?? undefined,
  };
}
