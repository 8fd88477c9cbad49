import { StorageError } from "../../errors.ts";
import { monotonicNow } from "../../timers.ts";
import type { Tally } from "../tally.ts";

/** However short the time-out of a call: a database that is just being opened, or busy, is waited for this long. */
const LEAST_PATIENCE_MS = 250;
const DELAYED_MS = 1000;
/** However short the time-out of a call: a connection that is being made is waited for this long. */
export const CONNECTING_MS = 3000;

/** What storage objects are told apart by: closing one ends what it waits for. */
export interface Origin {
  readonly queue: string;
  readonly fsync: boolean | undefined;
  /** How many jobs may be ready or processing for this object to add more. */
  readonly maxPending: number | undefined;
  /** Deliveries carry text where that loses nothing. */
  readonly text: boolean;
  /** Counts what is under way. */
  readonly tally: Tally;
}

/** What a caller asked for, until it is answered. */
export class Order<Input, Result> {
  readonly input: Input;
  readonly origin: Origin;
  readonly bytes: number;
  /** When to give up waiting for a lock or for the server, by the monotonic clock; one attempt is made in any case. */
  endsAt: number;
  /** Its storage closes: it waits on only while others that came before it get on. */
  closing = false;
  readonly #askedAt = monotonicNow();
  #tries = 0;
  #underWay = false;
  #settled = false;
  #withdrawn: { readonly reason: unknown } | undefined;
  readonly #resolve: (result: Result) => void;
  readonly #reject: (reason: unknown) => void;
  readonly #over: () => void;

  constructor(
    input: Input,
    origin: Origin,
    { bytes, endsAt }: { readonly bytes: number; readonly endsAt: number },
    settle: {
      readonly resolve: (result: Result) => void;
      readonly reject: (reason: unknown) => void;
      readonly over: () => void;
    },
  ) {
    this.input = input;
    this.origin = origin;
    this.bytes = bytes;
    this.endsAt = endsAt;
    this.#resolve = settle.resolve;
    this.#reject = settle.reject;
    this.#over = settle.over;
  }

  /** Whether an attempt is being made. */
  get underWay(): boolean {
    return this.#underWay;
  }

  set underWay(underWay: boolean) {
    if (underWay) this.#tries++;
    this.#underWay = underWay;
  }

  /** Whether it has waited for so long that what was true when it was asked for may have changed. */
  get isDelayed(): boolean {
    return this.#tries > 1 || monotonicNow() - this.#askedAt > DELAYED_MS;
  }

  /** When to give up waiting for a connection. */
  get connectsBy(): number {
    return Math.max(this.endsAt, this.#askedAt + CONNECTING_MS);
  }

  get settled(): boolean {
    return this.#settled;
  }

  succeed(result: Result): void {
    if (this.#end()) this.#resolve(result);
  }

  fail(reason: unknown): void {
    if (this.#end()) this.#reject(reason);
  }

  /** Its caller does not want it any more: it ends now, or after the attempt under way if that fails. */
  withdraw(reason: unknown): void {
    this.#withdrawn ??= { reason };
    if (!this.underWay) this.fail(reason);
  }

  /** After an attempt that failed, or before one. */
  isWanted(): boolean {
    this.#underWay = false;
    if (this.#withdrawn !== undefined) this.fail(this.#withdrawn.reason);
    return !this.#settled;
  }

  #end(): boolean {
    if (this.#settled) return false;
    this.#settled = true;
    this.#over();
    return true;
  }
}

export function patienceMs(lockMs: number): number {
  return Math.max(lockMs, LEAST_PATIENCE_MS);
}

export function tooBusy(place: string): StorageError {
  return new StorageError("BUSY", `${place} was locked or busy for too long. Try again, or allow more time.`);
}
