import { LeaseExpiredError } from "../../errors.ts";
import type { JobState } from "../../state.ts";
import type { Consumer, ConsumerListener, ConsumerSettings, Delivery, Lease, Settlement } from "../storage.ts";
import type { Client } from "./client.ts";
import { type ClaimCommand, type ConsumerOnWire, cellTime, type LeaseNews, monotonicMs, SLOT } from "./protocol.ts";

/** A claim for the storage of a consumer. */
export type ClaimRequestOnWire = Pick<ClaimCommand, "limit" | "leaseMs" | "waitMs" | "consumer" | "slot">;

/** What a consumer needs of its storage. */
export interface ConsumerStorage {
  claimFor(claim: ClaimRequestOnWire, signal: AbortSignal | undefined): Promise<Delivery[]>;
  settleHeld(lease: Lease, move: Settlement): Promise<JobState>;
}

/** Calls `forget` when the settlement, or its refusal, shows that the delivery is over. */
export async function onceOver(settling: Promise<JobState>, forget: () => void): Promise<JobState> {
  try {
    const state = await settling;
    forget();
    return state;
  } catch (error) {
    if (error instanceof LeaseExpiredError) forget();
    throw error;
  }
}

/** A consumer, and the deliveries that it holds. */
export class SqliteConsumer implements Consumer {
  readonly #storage: ConsumerStorage;
  readonly #client: Client;
  readonly #settings: ConsumerSettings;
  readonly #cells: Int32Array;
  readonly #id: number;
  readonly #onClose: () => void;
  /** The deliveries of each slot: the last one, and perhaps one before it that could not be settled yet. */
  readonly #held: Lease[][];
  /** By slot: what `start` wrote into its cell. */
  readonly #startedAt: number[] = [];
  #closed = false;

  constructor(
    storage: ConsumerStorage,
    settings: ConsumerOnWire,
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
    { waitMs, signal }: { waitMs: number; signal?: AbortSignal | undefined },
  ): Promise<Delivery | undefined> {
    const claim = { limit: 1, leaseMs: this.#settings.leaseMs, waitMs, consumer: this.#id, slot };
    const [delivery] = await this.#storage.claimFor(claim, signal);
    if (delivery !== undefined) this.#held[slot]?.push(delivery);
    return delivery;
  }

  start(slot: number, { receipt }: Lease): boolean {
    // The lease may have been lost while the payload was decoded.
    if (!this.#held[slot]?.some((held) => held.receipt === receipt)) return false;
    const startedAt = cellTime(monotonicMs());
    this.#startedAt[slot] = startedAt;
    if (Atomics.compareExchange(this.#cells, slot, SLOT.waiting, startedAt) === SLOT.waiting) return true;
    this.#forgetIn(slot, receipt);
    return false;
  }

  settle(slot: number, lease: Lease, move: Settlement): Promise<JobState> {
    // What it may take to settle is not the handler's time. By now the slot may be another delivery's.
    Atomics.compareExchange(this.#cells, slot, this.#startedAt[slot] ?? SLOT.ended, SLOT.ended);
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
