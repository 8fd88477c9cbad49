import { unlessAborted } from "./abort.ts";
import { LeaseExpiredError, QueueClosedError } from "./errors.ts";
import { type HandlerContext, HandlerRun, type Result } from "./handler-run.ts";
import { mayPass, Patience } from "./patience.ts";
import type { JobState } from "./state.ts";
import type { Consumer, ConsumerSettings, Delivery, Settlement, Storage } from "./storage/storage.ts";
import { monotonicNow, settlesWithin } from "./timers.ts";

/** The part in which consumers differ: a worker, or a subscription of an event bus. */
export interface Work<J> {
  /** Decodes; what it throws, or rejects with, makes the delivery `unreadable`. */
  open(delivery: Delivery): J | Promise<J>;
  /** What becomes of a delivery that cannot be decoded. */
  unreadable(delivery: Delivery, error: unknown): Settlement;
  /** Runs the user's code; may throw, or return a promise. */
  handle(job: J, context: HandlerContext): unknown;
  /** Decides what becomes of the job; `undefined` = nothing is left to do. */
  conclude(job: J, result: Result): Ending | undefined | Promise<Ending | undefined>;
  /** A delivery was ended, also one whose handler never ran: this is committed, and the job is in this state now. */
  settled(delivery: Delivery, settlement: Settlement, state: JobState): void;
  /** What was decided about a job could not be recorded: nobody here knows what becomes of it. */
  dropped(job: J): void;
  /** The storage refuses the settlement for good: what becomes of the job instead. `undefined` = this ends the loop. */
  refused(job: J, error: unknown): Ending | undefined;
  /** The decision about a job that was handled is committed, and the job is in this state now. */
  concluded(job: J, ending: Ending, state: JobState): void;
  leaseLost(job: J): void;
  leaseRenewed(job: J, leaseUntil: number): void;
  /** A fault of the storage that is being waited out. */
  troubled(error: unknown): void;
}

export interface Ending {
  readonly settlement: Settlement;
  /** What the handler threw, for those who watch. */
  readonly error: unknown;
}

/** Ends a loop when there has been nothing to do for a while. */
export interface Idleness {
  /** How long to wait for work before asking again, in milliseconds; 0 = the loop is to end. */
  leftMs(): number;
}

/** A delivery whose handler runs. */
interface Running<J> {
  readonly receipt: string;
  readonly job: J;
  readonly run: HandlerRun;
  /** The handler has ended; what becomes of the job is being decided. */
  hasEnded: boolean;
}

/** A delivery to be settled. If its handler never ran, there is no job to tell anybody about. */
interface Outcome<J> {
  readonly slot: number;
  readonly delivery: Delivery;
  readonly settlement: Settlement;
  readonly told?: { readonly job: J; readonly ending: Ending };
}

/** How long handlers that were aborted have to settle. */
const ABORT_GRACE_MS = 1_000;

/**
 * Claims, runs and settles deliveries, one at a time in each of its slots. Serves once: `run` or `runOnce`, and
 * `stop`.
 */
export class ConsumerLoop<J> {
  readonly #settings: ConsumerSettings;
  readonly #work: Work<J>;
  readonly #consumer: Consumer;
  readonly #patience: Patience;
  /** By slot. Looked through for a receipt rather than kept in a `Map`: see `slots.ts`. */
  readonly #running: (Running<J> | undefined)[] = [];
  /** Aborted by the first step of stopping: claim nothing more. */
  readonly #claiming = new AbortController();
  /** Aborted by the last step of stopping: wait for nothing more. */
  readonly #waiting = new AbortController();
  #hasHandled = false;
  #idleness: Idleness | undefined;
  /** Deliveries that are being handled or settled, faults that are waited out, and since when there have been none. */
  #busy = 0;
  #idleSince: number = monotonicNow();
  #lookedAt = Number.NEGATIVE_INFINITY;
  /** Why the loop cannot go on. */
  #fault: { readonly error: unknown } | undefined;
  #over: Promise<void> = Promise.resolve();
  #stopped: Promise<void> | undefined;

  constructor(storage: Storage, settings: ConsumerSettings, work: Work<J>) {
    this.#settings = settings;
    this.#work = work;
    this.#patience = new Patience((error) => work.troubled(error));
    this.#consumer = storage.consume(settings, {
      leaseLost: (receipt) => this.#leaseLost(receipt),
      leaseRenewed: (receipt, leaseUntil) => this.#leaseRenewed(receipt, leaseUntil),
      timedOut: (receipt) => this.#find(receipt)?.run.timedOut(),
      overdue: (receipt) => this.#find(receipt)?.run.overdue(),
    });
  }

  /**
   * Serves until `stop()`, or until it is idle. Rejects when the storage is lost for good, after the running handlers
   * have finished.
   */
  run(idleness?: Idleness): Promise<void> {
    this.#idleness = idleness;
    const slots = Array.from({ length: this.#settings.slots }, (_, slot) => this.#serve(slot));
    this.#over = this.#end(Promise.all(slots));
    return this.#over;
  }

  /** Looks for one job without waiting; resolves to whether its handler was run. */
  async runOnce(): Promise<boolean> {
    this.#over = this.#end(this.#serveOnce());
    await this.#over;
    return this.#hasHandled;
  }

  /** Resolves when all is settled, or nothing more can be done about it. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  /** For how long there has been nothing to do, in milliseconds. */
  get idleMs(): number {
    return this.#busy > 0 ? 0 : monotonicNow() - this.#idleSince;
  }

  /** How long ago a look began that found nothing, the last one. */
  get lookedMs(): number {
    return monotonicNow() - this.#lookedAt;
  }

  async #stop(): Promise<void> {
    // 1. Claim nothing more.
    this.#claiming.abort();
    // 2. Let the handlers finish; their leases are still renewed.
    if (await settlesWithin(this.#over, this.#settings.graceMs)) return;
    // 3. Abort those that still run, and give them a last moment.
    for (const running of this.#running) running?.run.interrupt();
    if (await settlesWithin(this.#over, ABORT_GRACE_MS)) return;
    // 4. Leave the rest alone: a handler that still runs keeps its lease until that expires.
    this.#waiting.abort();
    for (const running of this.#running) running?.run.abandon();
    await settlesWithin(this.#over, ABORT_GRACE_MS);
  }

  async #end(serving: Promise<unknown>): Promise<void> {
    try {
      await serving;
    } finally {
      this.#consumer.close();
    }
    if (this.#fault !== undefined) throw this.#fault.error;
  }

  async #serve(slot: number): Promise<void> {
    try {
      let claiming = this.#claim(slot);
      for (;;) {
        const delivery = await claiming;
        if (delivery === undefined) return;
        this.#busy++;
        const outcome = await this.#deliver(slot, delivery);
        // In one turn, so that the outcome and the next claim travel, and commit, together.
        const settling = outcome && this.#settle(outcome, Number.POSITIVE_INFINITY);
        claiming = this.#claim(slot);
        await settling; // as a rule before the claim; if not, nothing more is begun until it is recorded
        this.#busy--;
        this.#idleSince = monotonicNow();
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  async #serveOnce(): Promise<void> {
    while (!this.#hasHandled && !this.#claiming.signal.aborted) {
      const delivery = await this.#consumer.claim(0, { waitMs: 0 });
      if (delivery === undefined) return;
      const outcome = await this.#deliver(0, delivery);
      if (outcome !== undefined) await this.#settle(outcome, this.#settings.leaseMs);
    }
  }

  async #claim(slot: number): Promise<Delivery | undefined> {
    const { signal } = this.#claiming;
    while (!signal.aborted) {
      try {
        // One slot is enough to look out for the end.
        const leftMs = slot === 0 ? this.#idleness?.leftMs() : undefined;
        const waitMs = Math.max(1, leftMs ?? Number.POSITIVE_INFINITY);
        const begunAt = monotonicNow();
        const delivery = await this.#consumer.claim(slot, { waitMs, signal });
        this.#patience.reset();
        if (delivery !== undefined) return delivery;
        this.#lookedAt = begunAt;
        if (this.#idleness?.leftMs() === 0) void this.stop();
      } catch (error) {
        if (signal.aborted) break;
        if (mayPass(error)) await this.#busyWith(this.#patience.waitOut(error, signal));
        else this.#fail(error);
      }
    }
    return undefined;
  }

  /** Nobody knows what there is to do while the storage cannot be asked. */
  async #busyWith(pause: Promise<void>): Promise<void> {
    this.#busy++;
    await pause;
    this.#busy--;
    this.#idleSince = monotonicNow();
  }

  async #deliver(slot: number, delivery: Delivery): Promise<Outcome<J> | undefined> {
    let job: J;
    try {
      const opened = this.#work.open(delivery);
      job = opened instanceof Promise ? await unlessAborted(opened, this.#waiting.signal) : opened;
    } catch (error) {
      if (this.#waiting.signal.aborted) return { slot, delivery, settlement: { event: "release" } };
      return { slot, delivery, settlement: this.#work.unreadable(delivery, error) };
    }
    if (this.#claiming.signal.aborted) return { slot, delivery, settlement: { event: "release" } };
    if (!this.#consumer.start(slot, delivery)) return undefined;
    this.#hasHandled = true;
    const run = new HandlerRun(this.#settings.timeoutMs);
    const running: Running<J> = { receipt: delivery.receipt, job, run, hasEnded: false };
    this.#running[slot] = running;
    const result = await run.start((context) => this.#work.handle(job, context));
    running.hasEnded = true;
    const ending = await this.#work.conclude(job, result);
    this.#running[slot] = undefined;
    return ending && { slot, delivery, settlement: ending.settlement, told: { job, ending } };
  }

  /** Never rejects: what cannot be settled ends the loop. */
  async #settle(outcome: Outcome<J>, patienceMs: number): Promise<void> {
    try {
      await this.#settleAtLast(outcome, patienceMs);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Waits faults out: the lease may still hold when they are over, and settling it twice does no harm. */
  async #settleAtLast({ slot, delivery, ...outcome }: Outcome<J>, patienceMs: number): Promise<void> {
    let { settlement, told } = outcome;
    const giveUpAt = monotonicNow() + patienceMs;
    let unsure = false;
    while (true) {
      try {
        const state = await this.#consumer.settle(slot, delivery, settlement);
        this.#patience.reset();
        this.#work.settled(delivery, settlement, state);
        if (told !== undefined) this.#work.concluded(told.job, told.ending, state);
        return;
      } catch (error) {
        if (error instanceof LeaseExpiredError) {
          // After an unknown outcome it probably was this settlement, committed after all, that ended the lease. The
          // fault has been reported; that the lease was lost would be a second, false alarm.
          if (told !== undefined) unsure ? this.#work.dropped(told.job) : this.#work.leaseLost(told.job);
          return;
        }
        const instead = told && this.#work.refused(told.job, error);
        if (told !== undefined && instead !== undefined) {
          told = { job: told.job, ending: instead };
          settlement = instead.settlement;
          continue;
        }
        if (!mayPass(error) || monotonicNow() > giveUpAt) throw error;
        unsure ||= error.outcome === "unknown";
        const stopping = this.#claiming.signal.aborted;
        await this.#patience.waitOut(error, stopping ? this.#waiting.signal : this.#claiming.signal);
        if (!this.#waiting.signal.aborted) continue;
        if (told !== undefined) this.#work.dropped(told.job);
        return;
      }
    }
  }

  #fail(error: unknown): void {
    if (!(error instanceof QueueClosedError)) this.#fault ??= { error };
    void this.stop();
  }

  /** The job of a delivery whose handler runs here. */
  jobOf(receipt: string): J | undefined {
    return this.#find(receipt)?.job;
  }

  #find(receipt: string): Running<J> | undefined {
    return this.#running.find((running) => running?.receipt === receipt);
  }

  #leaseLost(receipt: string): void {
    const running = this.#find(receipt);
    if (running === undefined) return;
    running.run.leaseLost();
    // Otherwise the settlement will show it.
    if (!running.hasEnded) this.#work.leaseLost(running.job);
  }

  #leaseRenewed(receipt: string, leaseUntil: number): void {
    const running = this.#find(receipt);
    if (running !== undefined) this.#work.leaseRenewed(running.job, leaseUntil);
  }
}
