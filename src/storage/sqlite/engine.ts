import type { StorageError } from "../../errors.ts";
import { elapsedSince, SLOT } from "../handler-cells.ts";
import type { LeaseHolder } from "../held-leases.ts";
import { type ClaimContext, ClaimStep, type Waiter } from "./claims.ts";
import { ClockWatch } from "./clock-watch.ts";
import { stepOf } from "./command-steps.ts";
import { BUSY_SLICE_MS, type Connection } from "./connection.ts";
import { isConnectionFailure, toStorageError } from "./driver.ts";
import { countBatch, type Gauges, newGauges, noteHeldBack } from "./gauges.ts";
import { GroupCommit, type Step } from "./group-commit.ts";
import { joinSteps } from "./joined-steps.ts";
import { Leases } from "./leases.ts";
import { Neighbours, POLL_MS } from "./neighbours.ts";
import { Outbox } from "./outbox.ts";
import { type Pending, PendingCommands } from "./pending.ts";
import { type ClaimCommand, type Command, type FromEngine, SIGNAL, type ToEngine } from "./protocol.ts";
import { lockedOut } from "./refusals.ts";
import { Room } from "./room.ts";
import { Shrinking } from "./shrink.ts";
import { type CommandStep, LateDeliveryStep, TakeBackStep } from "./steps.ts";
import { Sweeps } from "./sweeps.ts";
import { Transitions } from "./transitions.ts";
import { WaitingClaims } from "./waiting-claims.ts";
import { WaitingStats } from "./waiting-stats.ts";

/** A client that has not been heard of for this long is given no work, and work that it did not start is taken back. */
const STALLED_MS = 1000;
/** A wait that ends this late means that the machine slept. */
const LATE_MS = 2000;
const CLOSING_MS = 500;
/** After an error of the connection nothing is tried again sooner, unless a message comes. */
const FAULT_RETRY_MS = 100;
/** Some lock conflicts are reported without a wait. */
const LOCK_RETRY_MS = 2;

export interface EngineOptions {
  readonly connection: Connection;
  readonly post: (message: FromEngine) => void;
  readonly signals: Int32Array;
  /** Where it counts; default: where nobody sees it. */
  readonly gauges?: Gauges;
  /** Milliseconds since the epoch. */
  readonly clock: () => number;
  readonly monotonic: () => number;
}

/**
 * The one writer of a client's database: gathers what its callers ask for, runs it in as few transactions as
 * possible, answers after COMMIT, hands out work as it appears and keeps the leases alive. It never sleeps: `step` does
 * what there is to do and says how long there will be nothing more.
 */
export class Engine {
  readonly #connection: Connection;
  readonly #transitions: Transitions;
  readonly #groupCommit: GroupCommit;
  readonly #outbox: Outbox;
  readonly #leases: Leases;
  readonly #clockWatch: ClockWatch;
  readonly #neighbours: Neighbours;
  readonly #sweeps: Sweeps;
  readonly #shrinking: Shrinking;
  readonly #signals: Int32Array;
  readonly #gauges: Gauges;
  readonly #clock: () => number;
  readonly #monotonic: () => number;
  readonly #consumers = new Map<number, LeaseHolder>();
  readonly #claims: WaitingClaims;
  readonly #pending: PendingCommands;
  readonly #room: Room;
  readonly #stats: WaitingStats;
  /** Work of our own that is done once: it is kept while the database is locked. */
  #own: Step[] = [];
  #planned: { readonly at: number; readonly wall: number } | undefined;
  /** After the machine slept: until when no lease is ended. */
  #expireAfter: number | undefined;
  #pauseUntil = 0;

  constructor({ connection, post, signals, gauges = newGauges(), clock, monotonic }: EngineOptions) {
    this.#connection = connection;
    this.#signals = signals;
    this.#gauges = gauges;
    this.#clock = clock;
    this.#monotonic = monotonic;
    this.#transitions = new Transitions(connection, clock);
    this.#groupCommit = new GroupCommit(connection, this.#transitions);
    this.#outbox = new Outbox(post);
    this.#pending = new PendingCommands(() => this.#outbox.batchDone());
    this.#room = new Room({ connection, transitions: this.#transitions, outbox: this.#outbox, monotonic });
    this.#stats = new WaitingStats({
      connection,
      transitions: this.#transitions,
      groupCommit: this.#groupCommit,
      outbox: this.#outbox,
      monotonic,
    });
    this.#claims = new WaitingClaims({
      connection,
      transitions: this.#transitions,
      outbox: this.#outbox,
      clock,
      context: () => this.#claimContext(),
    });
    this.#leases = new Leases(monotonic, (news) => this.#outbox.tell(news));
    this.#clockWatch = new ClockWatch(connection, clock);
    this.#shrinking = new Shrinking(connection);
    this.#neighbours = new Neighbours(signals, () => this.#outbox.askForWatch());
    this.#sweeps = new Sweeps({
      connection,
      outbox: this.#outbox,
      neighbours: this.#neighbours,
      clock,
      monotonic,
      consumers: this.#consumers,
      replayed: () => this.#checkAll(),
    });
  }

  receive(message: Exclude<ToEngine, { kind: "shutdown" }>): void {
    switch (message.kind) {
      case "batch":
        this.#accept(message.commands);
        break;
      case "abort":
        this.#abort(message.id);
        break;
      case "consume": {
        const { consumer: id, settings, held } = message;
        const consumer = { id, settings, cells: new Int32Array(settings.cells), occupants: [] };
        this.#consumers.set(id, consumer);
        for (const lease of held) this.#leases.add(lease, consumer, lease.slot, this.#monotonic());
        if (held.length > 0) this.#leases.renewAllAt(this.#monotonic());
        this.#sweeps.consumerCame();
        break;
      }
      case "dismiss":
        this.#leases.dismiss(message.consumer);
        this.#consumers.delete(message.consumer);
        break;
      case "stopWaiting":
        this.#room.stopWaiting(message.session, this.#pending.of(message.session));
        break;
      case "logMoved":
        this.#connection.log.begun();
        break;
      case "closeSession":
        this.#closeSession(message.session);
        break;
    }
  }

  #accept(commands: readonly Command[]): void {
    const now = this.#monotonic();
    const context = {
      outbox: this.#outbox,
      room: this.#room,
      leases: this.#leases,
      altered: () => this.#checkAll(),
    };
    const steps: CommandStep[] = [];
    for (const command of commands) {
      if (command.op === "stats") this.#stats.add(command, now);
      else if (command.op === "claim") this.#claims.add(this.#waiterOf(command, now));
      else if (command.op === "sweep") this.#sweeps.add(command);
      else steps.push(stepOf(command, now, context));
    }
    this.#pending.addBatch(steps);
  }

  #waiterOf(command: ClaimCommand, now: number): Waiter {
    const consumer = command.consumer === undefined ? undefined : this.#consumers.get(command.consumer);
    return { command, consumer, endsAt: now + command.waitMs, lockEndsAt: undefined };
  }

  /** Withdraws what has not been done yet; what is under way is answered as usual. */
  #abort(id: number): void {
    if (this.#pending.withdraw(id)) this.#outbox.answer({ id, refused: "aborted" });
    this.#room.withdraw(id);
    this.#claims.withdraw((command) => command.id === id, "aborted");
  }

  #closeSession(session: number): void {
    const latest = this.#monotonic() + CLOSING_MS;
    this.#pending.hurry(session, latest);
    this.#stats.hurry(session, latest);
    this.#claims.withdraw((command) => command.origin.session === session, "closed");
    this.#sweeps.closeSession(session);
  }

  /** Does what there is to do; returns after how many milliseconds to call again unless a message comes first. */
  step(): number {
    const now = this.#monotonic();
    this.#noticeSleep(now);
    const silentMs = elapsedSince(Atomics.load(this.#signals, SIGNAL.tick), now);
    const stalled = silentMs > STALLED_MS && (this.#leases.size > 0 || this.#claims.any);
    if (Atomics.exchange(this.#signals, SIGNAL.stalled, stalled ? 1 : 0) === 1 && !stalled) this.#checkAll();
    let ms: number;
    try {
      if (now >= this.#pauseUntil || this.#leases.nextAt <= now) this.#runBatch(now, silentMs, stalled);
      // Before the rest, which the client need not wait for.
      this.#outbox.flush();
      this.#connection.space.tend(this.#monotonic());
      this.#answerStats();
      this.#claims.endWaits(this.#monotonic(), stalled);
      this.#room.endWaits(this.#monotonic());
      ms = this.#nextWait(this.#monotonic(), stalled);
      this.#outbox.flush();
      if (this.#connection.log.tend(this.#monotonic())) {
        this.#outbox.askToMoveLog();
        this.#outbox.flush();
      }
      noteHeldBack(this.#gauges, this.#connection.log.heldBack);
    } catch (error) {
      if (isConnectionFailure(error)) this.#connection.close();
      this.#failEverything(toStorageError(error, this.#connection.file));
      this.#outbox.flush();
      // Whatever failed, the leases are to be renewed in time.
      ms = Math.max(FAULT_RETRY_MS, Math.min(POLL_MS, this.#leases.nextAt - this.#monotonic()));
    }
    this.#planned = { at: this.#monotonic() + ms, wall: this.#clock() + ms };
    return ms;
  }

  close(): void {
    this.#outbox.flush();
    this.#connection.close();
  }

  /** Leases ended while the machine slept: their holders, here and elsewhere, get a chance to renew them first. */
  #noticeSleep(now: number): void {
    if (this.#planned === undefined) return;
    if (this.#expireAfter !== undefined && now >= this.#expireAfter) {
      this.#expireAfter = undefined;
      this.#checkAll();
    }
    const late = Math.max(now - this.#planned.at, this.#clock() - this.#planned.wall);
    if (late < LATE_MS) return;
    this.#expireAfter = now + LATE_MS;
    this.#leases.renewAllAt(now);
  }

  #runBatch(now: number, silentMs: number, stalled: boolean): void {
    // It may fail, so it comes before anything is taken off a list.
    const repair = this.#clockWatch.nextStep(now);
    this.#own.push(...this.#leases.overdueSteps(now));
    if (stalled) this.#own.push(...this.#leases.takeUnstarted().map((lease) => new TakeBackStep(lease)));
    const renewal = this.#leases.renewalStep(now, silentMs);
    const own = this.#own.splice(0);
    const taken = this.#pending.take(this.#connection.commitMs, this.#connection.space.callers);
    const steps: Step[] = [...(renewal === undefined ? [] : [renewal]), ...own, ...taken.map(({ step }) => step)];
    steps.push(...this.#roomSteps(taken, steps.length > 0));
    if (!stalled) steps.push(...this.#claimSteps(taken, steps.length > 0));
    if (repair !== undefined) steps.push(repair);
    const sweep = this.#sweeps.nextStep(now, steps.length > 0);
    if (sweep !== undefined) {
      steps.push(sweep);
      this.#shrinking.noticeDeletions(now);
    }
    if (steps.length === 0) steps.push(...this.#shrinking.steps(now));
    if (steps.length === 0) return;
    const slice = Math.max(0, Math.min(BUSY_SLICE_MS, ...taken.map(({ step }) => step.lockEndsAt - now)));
    const startedAt = performance.now();
    const locked = this.#groupCommit.run(joinSteps(this.#connection.space.admit(steps, now)), slice);
    const tookMs = performance.now() - startedAt;
    countBatch(this.#gauges, steps.length, locked.length, tookMs, this.#connection.heldMs);
    if (repair !== undefined) this.#checkAll();
    if (this.#connection.takeForeignCommit()) this.#noticeForeignCommit();
    if (locked.length === 0) for (const pending of taken) this.#pending.done(pending);
    else this.#keepLocked(own, taken, new Set(locked), now);
    if (this.#room.hasWaiters) this.#room.batchEnded(new Set(locked), now);
    if (locked.length > 0) {
      if (sweep !== undefined && locked.includes(sweep)) this.#sweeps.locked(now, this.#monotonic());
      if (tookMs < slice / 2) this.#pauseUntil = this.#monotonic() + LOCK_RETRY_MS;
    } else if (sweep === undefined || steps.length > 1) {
      this.#pauseUntil = this.#monotonic() + this.#neighbours.gapMs(now, this.#connection.heldMs);
    }
  }

  /** Steps for the puts that wait for room, where there may be some. */
  #roomSteps(taken: readonly Pending[], locking: boolean): Step[] {
    if (!this.#room.hasWaiters) return [];
    if (!locking && this.#connection.pollForeignCommit()) this.#noticeForeignCommit();
    const steps = this.#room.steps(taken);
    if (!locking && steps.length === 0) this.#connection.checkFiles();
    for (const { command } of steps) this.#claims.check(command.origin.queue);
    return steps;
  }

  /** Steps for the claims that wait for work. */
  #claimSteps(taken: readonly Pending[], locking: boolean): Step[] {
    if (!this.#claims.any) return [];
    if (!locking && this.#connection.pollForeignCommit()) this.#noticeForeignCommit();
    const steps = this.#claims.steps(new Set(taken.flatMap(({ step }) => step.queues)), locking);
    if (!locking && steps.length === 0) this.#connection.checkFiles();
    return steps;
  }

  #claimContext(): ClaimContext {
    const context: ClaimContext = {
      outbox: this.#outbox,
      now: this.#clock,
      mayExpire: this.#expireAfter === undefined,
      hold: (lease, { consumer, command: { slot = 0 } }) => {
        if (consumer === undefined || !this.#consumers.has(consumer.id)) return;
        Atomics.store(consumer.cells, slot, SLOT.waiting);
        this.#leases.add(lease, consumer, slot);
      },
      deliverLate: (waiter, rows) => this.#own.push(new LateDeliveryStep(waiter, rows, context)),
    };
    return context;
  }

  #noticeForeignCommit(): void {
    this.#shrinking.noticeDeletions(this.#monotonic());
    this.#neighbours.committed(this.#monotonic());
    this.#checkAll();
  }

  #checkAll(): void {
    this.#transitions.startle();
    this.#room.checkAll();
    this.#claims.checkAll();
  }

  /** Steps that the lock kept out: their callers wait on, or are told that their time is up. */
  #keepLocked(own: readonly Step[], taken: readonly Pending[], locked: ReadonlySet<Step>, since: number): void {
    const now = this.#monotonic();
    const kept: Pending[] = [];
    for (const pending of taken) {
      const { step } = pending;
      if (locked.has(step) && step.lockEndsAt > now) kept.push(pending);
      else {
        if (locked.has(step)) step.fail(lockedOut(this.#connection.file));
        this.#pending.done(pending);
      }
    }
    this.#own.unshift(...own.filter((step) => locked.has(step)));
    this.#pending.giveBack(kept);
    for (const step of locked) if (step instanceof ClaimStep) step.markLocked(since);
  }

  #answerStats(): void {
    if (!this.#stats.any) return;
    // Whoever reads beside the engine asks this first, and relies on it.
    this.#connection.checkFiles();
    if (this.#connection.pollForeignCommit()) this.#noticeForeignCommit();
    this.#stats.answer();
  }

  #failEverything(error: StorageError): void {
    this.#pending.failAll(error);
    this.#sweeps.failAll(error);
    this.#room.failAll(error);
    this.#claims.failAll(error);
    this.#stats.failAll(error);
  }

  #nextWait(now: number, stalled: boolean): number {
    let ms = this.#claims.waitMs(now, stalled);
    if (this.#claims.any) ms = Math.min(ms, stalled ? STALLED_MS : this.#neighbours.pollMs(now));
    if (this.#room.hasWaiters) {
      ms = Math.min(ms, this.#room.nextEnd - now);
      if (stalled || !this.#claims.any) ms = Math.min(ms, this.#neighbours.pollMs(now));
    }
    if (this.#hasToDo(stalled)) ms = Math.min(ms, this.#pauseUntil - now);
    ms = Math.min(ms, Math.max(this.#sweeps.nextAt, this.#pauseUntil) - now);
    if (this.#leases.size > 0) ms = Math.min(ms, this.#leases.nextAt - now, POLL_MS);
    ms = Math.min(ms, this.#shrinking.waitMs(now), this.#connection.log.shortenAt - now);
    return Math.max(0, ms);
  }

  #hasToDo(stalled: boolean): boolean {
    if (this.#pending.size + this.#own.length > 0 || this.#stats.any || this.#clockWatch.busy) return true;
    return this.#claims.toDo(stalled) || (this.#room.hasWaiters && this.#room.toDo);
  }
}
