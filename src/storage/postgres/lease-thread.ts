import { type MessagePort, workerData } from "node:worker_threads";
import { StorageError, type StorageErrorCode } from "../../errors.ts";
import { clearTimeout, setTimeout } from "../../timers.ts";
import { elapsedSince } from "../handler-cells.ts";
import { type HeldLease, HeldLeases, type LeaseHolder } from "../held-leases.ts";
import type { PostgresTarget } from "../postgres-target.ts";
import type { ConsumerNews, LeaseNews } from "../slot-consumer.ts";
import type { Lease } from "../storage.ts";
import { type ClockReading, monotonicMs, setClockBy } from "../thread-clock.ts";
import { openSession, type Session } from "./connect.ts";
import { parametersOf } from "./endings.ts";
import { sqlState } from "./failures.ts";
import { cut } from "./rows.ts";
import { firstPause, longer, pauseFor, troubleOf } from "./runner.ts";
import { type Statements, statementsOf } from "./statements.ts";
import { type Transaction, transact } from "./transaction.ts";

/**
 * The thread that renews the leases of a client's consumers, on a connection of its own: a handler that blocks the event
 * loop keeps its lease. It also keeps the handlers' time, and gives back what was never started.
 */

/** A client that has not been heard of for this long is stalled: work that it did not start is given back. */
const STALLED_MS = 1000;
/** How often to look whether it is. */
const LOOK_MS = 250;
const RETRY_MS = 100;
/** A renewal that takes longer gets no answer. */
const HUNG_MS = 3000;
const LOCK_MS = 1000;

export type ToKeeper =
  | ConsumerNews
  | { readonly kind: "hold"; readonly consumer: number; readonly slot: number; readonly leases: readonly Lease[] }
  | { readonly kind: "release"; readonly receipt: string }
  | { readonly kind: "extended"; readonly receipt: string; readonly ms: number }
  | { readonly kind: "shutdown" };

export type FromKeeper =
  | { readonly kind: "ready" }
  | { readonly kind: "unreachable"; readonly code: StorageErrorCode; readonly text: string }
  | { readonly kind: "news"; readonly news: readonly LeaseNews[] };

export interface KeeperThreadData {
  readonly target: PostgresTarget;
  readonly port: MessagePort;
  /** When the client was last seen alive, a `cellTime`. */
  readonly tick: Int32Array;
  readonly clock: ClockReading;
}

class LeaseThread {
  readonly #data: KeeperThreadData;
  readonly #sql: Statements;
  readonly #leases: HeldLeases;
  readonly #holders = new Map<number, LeaseHolder>();
  #news: LeaseNews[] = [];
  #session: Session | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #working = false;
  #ended = false;
  /** What is still to be written, should the server be gone for a while. */
  #overdue: HeldLease[] = [];
  #unstarted: HeldLease[] = [];

  constructor(data: KeeperThreadData) {
    this.#data = data;
    this.#sql = statementsOf(data.target.schema);
    this.#leases = new HeldLeases(monotonicMs, (news) => this.#news.push(news));
    data.port.on("message", (message: ToKeeper) => this.#receive(message));
    void this.#connect();
  }

  /** Nothing is claimed before it could be renewed. */
  async #connect(): Promise<void> {
    this.#working = true;
    for (let pause = firstPause(); !this.#ended; pause = longer(pause)) {
      try {
        await this.#open();
        break;
      } catch (error) {
        const { code, message } = error as StorageError;
        this.#post({ kind: "unreachable", code, text: `${message} This is the connection that renews leases.` });
        this.#judge(error);
        await pauseFor(pause);
      }
    }
    this.#working = false;
    if (this.#ended) return;
    this.#post({ kind: "ready" });
    this.#plan();
  }

  #post(message: FromKeeper): void {
    this.#data.port.postMessage(message);
  }

  #receive(message: ToKeeper): void {
    switch (message.kind) {
      case "consume": {
        const { consumer: id, settings, held } = message;
        const holder = { id, settings, cells: new Int32Array(settings.cells), occupants: [] };
        this.#holders.set(id, holder);
        for (const lease of held) this.#leases.add(lease, holder, lease.slot, monotonicMs());
        if (held.length > 0) this.#leases.renewAllAt(monotonicMs());
        break;
      }
      case "dismiss":
        this.#leases.dismiss(message.consumer);
        this.#holders.delete(message.consumer);
        break;
      case "hold": {
        const holder = this.#holders.get(message.consumer);
        if (holder !== undefined) for (const lease of message.leases) this.#leases.add(lease, holder, message.slot);
        break;
      }
      case "release":
        this.#leases.delete(message.receipt);
        break;
      case "extended":
        this.#leases.extended(message.receipt, message.ms);
        break;
      case "shutdown":
        void this.#end();
        return;
    }
    this.#plan();
  }

  get #idle(): boolean {
    return this.#leases.size + this.#overdue.length + this.#unstarted.length === 0;
  }

  #plan(): void {
    if (this.#working || this.#ended) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#idle) return;
    const ms = Math.max(0, Math.min(LOOK_MS, this.#leases.nextAt - monotonicMs()));
    this.#timer = setTimeout(() => void this.#work(), ms);
  }

  async #work(): Promise<void> {
    this.#working = true;
    const now = monotonicMs();
    const silentMs = elapsedSince(Atomics.load(this.#data.tick, 0), now);
    this.#overdue.push(...this.#leases.takeOverdue(now));
    if (silentMs > STALLED_MS) this.#unstarted.push(...this.#leases.takeUnstarted());
    const due = this.#leases.dueForRenewal(now, silentMs);
    this.#tell();
    if (due.length + this.#overdue.length + this.#unstarted.length > 0) await this.#write(due);
    this.#tell();
    this.#working = false;
    this.#plan();
  }

  #tell(): void {
    if (this.#news.length > 0) this.#post({ kind: "news", news: this.#news.splice(0) });
  }

  async #write(due: readonly HeldLease[]): Promise<void> {
    try {
      if (due.length > 0) await this.#renew(due);
    } catch (error) {
      this.#judge(error);
      for (const held of due) this.#leases.postpone(held, RETRY_MS);
    }
    const [overdue, unstarted] = [this.#overdue, this.#unstarted];
    if (overdue.length + unstarted.length === 0) return;
    try {
      // By itself: what is in its way must not cost anybody's lease.
      await this.#change((transaction) => this.#giveUp(transaction, overdue, unstarted));
      this.#overdue = [];
      this.#unstarted = [];
    } catch (error) {
      this.#judge(error);
    }
  }

  async #renew(due: readonly HeldLease[]): Promise<void> {
    const rows = await this.#change((transaction) => transaction.query(this.#sql.renew, leasesOf(due)));
    const untils = new Map(rows.map((row) => [row["n"] as number, row["lease_until"] as number | null]));
    for (const [index, held] of due.entries()) {
      const until = untils.get(index + 1);
      // Somebody is just changing the row: it is still held, as far as can be seen.
      if (until === null) this.#leases.postpone(held, RETRY_MS);
      else this.#leases.renewed(held, until);
    }
  }

  async #giveUp(
    transaction: Transaction,
    overdue: readonly HeldLease[],
    unstarted: readonly HeldLease[],
  ): Promise<void> {
    for (const { id, receipt, consumer } of overdue) {
      transaction.send(this.#sql.markOverdue, [id, consumer.settings.queue, receipt]);
    }
    if (unstarted.length === 0) return;
    const released = unstarted.map((lease) => ({
      input: { lease, move: { event: "release" } as const },
      origin: { queue: lease.consumer.settings.queue },
    }));
    await transaction.query(this.#sql.end.release, parametersOf(released));
  }

  async #change<T>(work: (transaction: Transaction) => Promise<T>): Promise<T> {
    return await transact(await this.#open(), { lockMs: LOCK_MS, fsync: undefined, hungMs: HUNG_MS }, work);
  }

  #judge(error: unknown): void {
    // The password may be one that is only good for a while: a thread that follows is told a new one.
    if (sqlState(error instanceof StorageError ? error.cause : error)?.startsWith("28")) void this.#end();
    if (troubleOf(error) !== "locked" && troubleOf(error) !== "crossed") this.#disconnect();
  }

  async #open(): Promise<Session> {
    this.#session ??= await openSession(this.#data.target);
    if (this.#ended) await this.#session.close();
    return this.#session;
  }

  #disconnect(): void {
    const session = this.#session;
    this.#session = undefined;
    if (session === undefined) return;
    cut(session.client);
    void session.close(true);
  }

  async #end(): Promise<void> {
    this.#ended = true;
    clearTimeout(this.#timer);
    this.#data.port.close();
    await this.#session?.close();
  }
}

function leasesOf(held: readonly HeldLease[]): unknown[][] {
  return [
    held.map(({ id }) => id),
    held.map(({ receipt }) => receipt),
    held.map(({ consumer }) => consumer.settings.queue),
    held.map(({ consumer }) => Math.round(consumer.settings.leaseMs)),
  ];
}

const data = workerData as KeeperThreadData;
setClockBy(data.clock);
new LeaseThread(data);
