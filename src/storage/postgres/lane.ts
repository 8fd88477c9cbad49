import type { StorageError } from "../../errors.ts";
import { clearTimeout, monotonicNow, queueMicrotask, setImmediate, setTimeout } from "../../timers.ts";
import { toStorageError } from "./failures.ts";
import { type Order, type Origin, tooBusy } from "./order.ts";
import { firstPause, longer, pauseFor, type Runner, type Trouble, troubleOf } from "./runner.ts";
import { type Transaction, Verdict } from "./transaction.ts";

/** A batch ends at so many orders or bytes; what is larger goes alone. */
const BATCH_ORDERS = 1000;
const BATCH_BYTES = 1024 * 1024;
/** What was accepted by a storage that closes waits so long for anything to get on. */
const CLOSING_MS = 500;
/** A batch that meets locks is tried so often as a whole: another client may just have had the same jobs. */
const WHOLE_TRIES = 3;
/** One that was in the way of the others holds them up no longer than this. */
const ASIDE_LOCK_MS = 50;
const LONGEST_WATCH_MS = 100;
const SHORTEST_WATCH_MS = 10;

/** What came of a batch. */
export interface Outcome<Result> {
  /** In the order of the batch; an error refuses. */
  readonly answers: readonly (Result | Error)[];
  /** Queues in which there may be more to claim, and those in which there may be room. */
  readonly stirred?: Iterable<string>;
  readonly freed?: Iterable<string>;
}

/** One of a batch cannot be done, and nothing of it may be: the others are done without it. */
export class Culprit<Input, Result> extends Verdict {
  readonly order: Order<Input, Result>;
  readonly reason: Error;

  constructor(order: Order<Input, Result>, reason: Error) {
    super("one of a batch was refused");
    this.order = order;
    this.reason = reason;
  }
}

export interface LaneOptions<Input, Result> {
  readonly runner: Runner;
  /** Does what the orders ask for, in one transaction. May be called again, with all or some of them. */
  readonly perform: (
    transaction: Transaction,
    orders: readonly Order<Input, Result>[],
    runner: Runner,
  ) => Promise<Outcome<Result>>;
  /** Told after COMMIT, before anybody is answered. */
  readonly committed: (outcome: Outcome<Result>) => void;
}

/**
 * Orders of one kind, in batches: while one is under way the next one gathers, so that many callers share a transaction
 * and nobody waits for company. What fails in a batch is done one by one; what somebody else's lock is in the way of waits
 * beside the others.
 */
export class Lane<Input, Result> {
  readonly #options: LaneOptions<Input, Result>;
  #waiting: Order<Input, Result>[] = [];
  /** Those of which somebody else holds a lock: each is tried again between two batches. */
  #aside: Order<Input, Result>[] = [];
  #batch: readonly Order<Input, Result>[] = [];
  #running = false;
  /** Whether the attempt under way has a connection: nobody can give up any more what it was asked for. */
  #begun = false;
  /** When the last batch was committed, or a storage began to close. */
  #doneAt = 0;
  #trouble: StorageError | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #attempted: (() => void)[] = [];

  constructor(options: LaneOptions<Input, Result>) {
    this.#options = options;
  }

  add(order: Order<Input, Result>): void {
    this.#waiting.push(order);
    if (!this.#running) {
      this.#running = true;
      queueMicrotask(() => void this.#run());
    }
    this.#watch(LONGEST_WATCH_MS);
  }

  /** Resolves once what there is now was tried, unless locks are in its way. */
  async passed(): Promise<void> {
    for (let batches = this.#waiting.length > 0 ? 2 : 1; this.#running && batches > 0; batches--) {
      await new Promise<void>((resolve) => this.#attempted.push(resolve));
    }
  }

  /** A storage closes: what it has asked for is done soon, or given up. */
  close(origin: Origin): void {
    this.#doneAt = monotonicNow();
    for (const order of [...this.#batch, ...this.#others]) if (order.origin === origin) order.closing = true;
    if (this.#running) this.#watch(SHORTEST_WATCH_MS);
  }

  get #hasOthers(): boolean {
    return this.#waiting.length + this.#aside.length > 0;
  }

  get #others(): Order<Input, Result>[] {
    return [...this.#aside, ...this.#waiting];
  }

  async #run(): Promise<void> {
    while (this.#hasOthers) {
      if (this.#waiting.length > 0) await this.#serve(this.#take(), 0);
      const aside = this.#aside.shift();
      if (aside !== undefined) await this.#serve([aside], WHOLE_TRIES);
    }
    this.#running = false;
    this.#passed();
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #serve(batch: readonly Order<Input, Result>[], blocked: number): Promise<void> {
    this.#batch = batch;
    await this.#settle(batch, blocked);
    this.#batch = [];
  }

  #passed(): void {
    for (const resolve of this.#attempted.splice(0)) resolve();
  }

  #take(): Order<Input, Result>[] {
    let bytes = 0;
    let count = 0;
    for (const order of this.#waiting) {
      bytes += order.bytes;
      if (count > 0 && (count === BATCH_ORDERS || bytes > BATCH_BYTES)) break;
      count++;
    }
    return this.#waiting.splice(0, count);
  }

  /** Tries until each of them is answered, or waits beside the others. `blocked`: how often locks were in their way. */
  async #settle(orders: readonly Order<Input, Result>[], blocked: number): Promise<void> {
    let locked = blocked;
    for (let pause = firstPause(); ; pause = longer(pause)) {
      const wanted = orders.filter((order) => order.isWanted());
      if (wanted.length === 0) return;
      const trouble = await this.#try(wanted);
      this.#passed();
      if (trouble === undefined) return;
      if (trouble === "apart") {
        for (const order of wanted) await this.#settle([order], locked);
        return;
      }
      const meetsLocks = trouble === "locked" || trouble === "crossed";
      if (meetsLocks && ++locked > WHOLE_TRIES) {
        await this.#divide(wanted, locked);
        return;
      }
      if (orders.every(({ settled }) => settled)) return;
      // Those who got in each other's way must not do so again at the same moment.
      if (trouble !== "culprit") await pauseFor(meetsLocks ? pause * Math.random() : pause);
    }
  }

  /** One of them, or a few, are in the way of the others. */
  async #divide(orders: readonly Order<Input, Result>[], locked: number): Promise<void> {
    if (orders.length === 1) {
      this.#aside.push(...orders);
      await pauseFor(firstPause() * Math.random());
      return;
    }
    const middle = Math.ceil(orders.length / 2);
    await this.#settle(orders.slice(0, middle), locked);
    await this.#settle(orders.slice(middle), locked);
  }

  async #try(orders: readonly Order<Input, Result>[]): Promise<Trouble | "culprit" | "apart" | undefined> {
    const { runner, perform, committed } = this.#options;
    this.#begun = false;
    try {
      const endsAt = orders.map((order) => this.#endOf(order));
      const attempt = {
        lockMs: Math.min(Math.min(...endsAt) - monotonicNow(), this.#longestLockMs(orders)),
        fsync: fsyncOf(orders),
        endsAt: () => Math.max(...endsAt),
      };
      let wanted: Order<Input, Result>[] = [];
      const outcome = await runner.run(attempt, (transaction) => {
        // Some may have given up while a connection was waited for.
        wanted = orders.filter((order) => order.isWanted());
        for (const order of wanted) order.underWay = true;
        this.#begun = true;
        return perform(transaction, wanted, runner);
      });
      this.#trouble = undefined;
      this.#doneAt = monotonicNow();
      committed(outcome);
      for (const [index, order] of wanted.entries()) {
        const answer = outcome.answers[index] as Result | Error;
        if (answer instanceof Error) order.fail(answer);
        else order.succeed(answer);
      }
      return undefined;
    } catch (error) {
      return this.#judge(error, orders);
    } finally {
      this.#begun = false;
    }
  }

  #longestLockMs({ length }: readonly unknown[]): number {
    return length === 1 && this.#hasOthers ? ASIDE_LOCK_MS : Number.POSITIVE_INFINITY;
  }

  #judge(error: unknown, orders: readonly Order<Input, Result>[]): Trouble | "culprit" | "apart" {
    if (error instanceof Culprit) {
      (error.order as Order<Input, Result>).fail(error.reason);
      return "culprit";
    }
    const { runner } = this.#options;
    const trouble = troubleOf(error);
    const failure = toStorageError(error, runner.place);
    if (runner.isTransient(trouble)) {
      this.#trouble = failure;
      this.#expire(orders, monotonicNow());
      return trouble;
    }
    // Whoever shares its fate with others is tried alone, unless it would be in vain, or might be done twice.
    if (orders.length > 1 && trouble === "lasting" && failure.outcome === "failed" && !isOfAll(failure)) return "apart";
    for (const order of orders) order.fail(failure);
    return trouble;
  }

  #expire(orders: readonly Order<Input, Result>[], now: number): void {
    for (const order of orders) {
      if (!order.settled && this.#endOf(order) <= now) order.fail(this.#trouble ?? tooBusy(this.#options.runner.place));
    }
  }

  #endOf({ endsAt, closing }: Order<Input, Result>): number {
    return closing ? Math.min(endsAt, this.#doneAt + CLOSING_MS) : endsAt;
  }

  /** Tells those whose time is up that could not be tried yet, and ends an attempt that takes for ever. */
  #watch(mostMs: number): void {
    if (this.#timer !== undefined && mostMs >= LONGEST_WATCH_MS) return;
    clearTimeout(this.#timer);
    const isOverdue = ({ closing, connectsBy }: Order<Input, Result>): boolean =>
      closing || connectsBy <= monotonicNow();
    const look = (): void => {
      this.#timer = undefined;
      const now = monotonicNow();
      if (this.#begun) this.#expire(this.#others, now);
      else this.#expire([...this.#batch, ...this.#others].filter(isOverdue), now);
      this.#waiting = this.#waiting.filter(({ settled }) => !settled);
      if (this.#running) this.#watch(LONGEST_WATCH_MS);
    };
    // After a long block of the event loop answers, which wait too, are read first.
    this.#timer = setTimeout(() => setImmediate(look), mostMs);
  }
}

/** Flushed to the disk if one of them asks for it; as the server has it if one leaves that to the server. */
function fsyncOf(orders: readonly Order<unknown, never>[] | readonly Order<never, unknown>[]): boolean | undefined {
  const all = (orders as readonly Order<unknown, unknown>[]).map(({ origin }) => origin.fsync);
  return all.includes(true) ? true : all.includes(undefined) ? undefined : false;
}

/** What no order of a batch has caused. */
function isOfAll({ code }: StorageError): boolean {
  return code !== "IO" && code !== "BUSY";
}
