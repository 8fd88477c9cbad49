import { LeaseExpiredError } from "../errors.ts";
import type { JobState } from "../state.ts";
import { cellTime, SLOT } from "./handler-cells.ts";
import type {
  Consumer,
  ConsumerListener,
  ConsumerSettings,
  Delivery,
  Lease,
  Retention,
  Settlement,
} from "./storage.ts";
import { monotonicMs } from "./thread-clock.ts";

export interface ConsumerOnWire extends ConsumerSettings {
  readonly queue: string;
  readonly fsync: boolean;
  readonly retention: Retention | undefined;
  /** One cell per slot: `SLOT`, or the `cellTime` at which the handler was started. */
  readonly cells: SharedArrayBuffer;
}

/** A lease that is to be renewed for a consumer, told anew to a thread that follows another. */
export interface HeldOnWire extends Lease {
  readonly slot: number;
}

/** A consumer comes or goes, as the thread that renews its leases is told. */
export type ConsumerNews =
  | {
      readonly kind: "consume";
      readonly consumer: number;
      readonly settings: ConsumerOnWire;
      readonly held: readonly HeldOnWire[];
    }
  | { readonly kind: "dismiss"; readonly consumer: number };

/** What a consumer's listener is told. */
export interface LeaseNews {
  readonly consumer: number;
  readonly receipt: string;
  readonly news: "lost" | "renewed" | "timedOut" | "overdue";
  readonly leaseUntil?: number;
}

/** What a client keeps of a consumer, so that a new thread can go on where the former one died. */
export interface ConsumerRecord {
  readonly settings: ConsumerOnWire;
  readonly held: () => readonly HeldOnWire[];
  readonly tell: (news: LeaseNews) => void;
}

/** Who has the leases of consumers renewed. */
export interface ConsumerRegistry {
  /** Registers a consumer; returns its number. */
  consume(record: ConsumerRecord): number;
  dismiss(consumer: number): void;
}

/** A claim, also for a consumer's slot. */
export interface SlotClaim {
  readonly limit: number;
  readonly leaseMs: number;
  /** 0 = look once, Infinity = wait for ever. */
  readonly waitMs: number;
  readonly consumer?: number;
  readonly slot?: number;
}

/** What a consumer needs of its storage. */
export interface ConsumerStorage {
  claimFor(claim: SlotClaim, signal: AbortSignal | undefined): Promise<Delivery[]>;
  settleHeld(lease: Lease, move: Settlement, consumer: ConsumerSettings): Promise<JobState>;
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
export class SlotConsumer implements Consumer {
  readonly #storage: ConsumerStorage;
  readonly #registry: ConsumerRegistry;
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
    registry: ConsumerRegistry,
    onClose: () => void,
  ) {
    this.#storage = storage;
    this.#registry = registry;
    this.#settings = settings;
    this.#cells = new Int32Array(settings.cells);
    this.#held = Array.from(this.#cells, () => []);
    this.#onClose = onClose;
    this.#id = registry.consume({
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
    return onceOver(this.#storage.settleHeld(lease, move, this.#settings), () => this.#forgetIn(slot, lease.receipt));
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
    this.#registry.dismiss(this.#id);
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
