import type { FailureReason } from "../../../dist/state.js";
import type { Lease, Settlement } from "../../../dist/storage/storage.js";
import { type Call, putCommand, type TestClock, type TestConsumer, TestEngine } from "../../support/engine-harness.ts";
import { builtInError, type Fault, FaultyDriver, type Planted, sqliteError } from "../../support/faulty-driver.ts";
import type { Random } from "../../support/random.mjs";
import type { AskedJob, ClaimCall, Call as HistoryCall, Result, SettleCall } from "./history.ts";
import { eventOf } from "./model-run.ts";
import type { Story } from "./story.ts";

const LEASES_MS = [500, 2000, 10_000];
const SLOTS = 2;
const EXHAUSTED: FailureReason = "retries_exhausted";

/** What many processes on one file have in common. */
export interface World {
  readonly directory: string;
  readonly clock: TestClock;
  readonly random: Random;
  readonly story: Story;
  readonly queues: readonly string[];
  /** A text that no other job has. */
  newName(): string;
  /** Jobs that somebody may want to do something about. */
  readonly knownIds: number[];
}

/** A call that is under way: its number in the history, and what to make of its answer. */
interface UnderWay {
  readonly call: Call;
  readonly of: number;
  readonly resultOf: (call: Call) => Result;
}

interface Holding extends Lease {
  readonly queue: string;
  readonly slot: number | undefined;
}

/** A process with an engine on the file, whose program asks for things and hears of the answers some time later. */
export class SimulatedProcess {
  readonly name: string;
  driver: FaultyDriver = new FaultyDriver();
  readonly planted: Planted[] = [];
  readonly #world: World;
  #engine: TestEngine | undefined;
  #consumer: TestConsumer | undefined;
  #consumes = { queue: "", leaseMs: 0 };
  #lives = 0;
  #stepping = false;
  #underWay: UnderWay[] = [];
  /** Also those whose lease is over: some programs do not notice. */
  #held: Holding[] = [];

  constructor(name: string, world: World) {
    this.name = name;
    this.#world = world;
  }

  get alive(): boolean {
    return this.#engine !== undefined;
  }

  get #life(): string {
    return `${this.name}.${this.#lives}`;
  }

  start(): void {
    const { directory, clock, random, queues } = this.#world;
    this.#lives++;
    try {
      const engine = new TestEngine({ directory, driver: this.driver, clock, idle: true, closedByCaller: true });
      this.#engine = engine;
    } catch (error) {
      // Whoever cannot open tries again later.
      if ((error as { code?: unknown }).code === undefined) throw error;
      return;
    }
    if (random.chance(0.5)) {
      this.#consumes = { queue: random.pick(queues), leaseMs: random.pick(LEASES_MS) };
      this.#consumer = this.#engine.consume({
        ...this.#consumes,
        slots: SLOTS,
        heartbeatMs: this.#consumes.leaseMs / 3,
      });
    }
  }

  /** Nothing that it was told counts any more, unless it has heard of it. */
  kill(): void {
    this.driver.heal();
    this.#engine?.close();
    this.#engine = undefined;
    this.#consumer = undefined;
    this.#underWay = [];
    this.#held = [];
    this.driver = new FaultyDriver();
  }

  plant(fault: Fault): void {
    this.planted.push(this.driver.plant(fault));
  }

  step(): void {
    // A process that is interrupted by another one cannot go on within that one's step.
    if (this.#stepping) return;
    this.#stepping = true;
    this.#engine?.tick();
    this.#engine?.step();
    this.#stepping = false;
  }

  /** As if its event loop was blocked. */
  stepWithoutSignOfLife(): void {
    this.#engine?.step();
  }

  #ask(call: HistoryCall, perform: (engine: TestEngine) => Call, resultOf: (call: Call) => Result): void {
    if (this.#engine === undefined) return;
    const of = this.#world.story.invoke(this.#life, call);
    this.#underWay.push({ call: perform(this.#engine), of, resultOf });
  }

  /** The program hears of what has been answered. */
  hear(): void {
    for (const { call, of, resultOf } of this.#underWay.filter((each) => each.call.answered)) {
      const { story } = this.#world;
      const { error, answer } = call;
      if (error !== undefined) story.failed(this.#life, of, error.outcome === "failed" ? "fail" : "info", error.code);
      else if (answer?.conflict !== undefined) story.failed(this.#life, of, "fail", "conflict");
      else if (answer?.refused !== undefined) story.failed(this.#life, of, "fail", answer.refused);
      else story.ok(this.#life, of, resultOf(call));
    }
    this.#underWay = this.#underWay.filter(({ call }) => !call.answered);
  }

  put(): void {
    const { random, queues } = this.#world;
    const queue = random.pick(queues);
    const jobs = Array.from({ length: random.between(1, 3) }, () => this.#newJob(queue));
    // Some wait for room, others do not look how much there is.
    this.#put(jobs, random.chance(0.3) ? { maxPending: 6, waitMs: random.pick([0, 200, 5000]) } : {});
  }

  /** Many callers at once, each with one job: most of them become one statement. */
  burst(): void {
    const { random, queues } = this.#world;
    const queue = random.pick(queues);
    for (let left = random.between(16, 40); left > 0; left--) {
      const isOdd = random.chance(0.03);
      this.#put([isOdd ? this.#newJob(random.pick(queues)) : { ...this.#newJob(queue), jobId: undefined }]);
    }
  }

  /** All into one queue. */
  #put(jobs: readonly AskedJob[], limit: { maxPending?: number; waitMs?: number } = {}): void {
    const queue = jobs[0]?.queue as string;
    const entries = jobs.map(({ payload, jobId = null, delayMs = 0, maxAttempts = 4 }) => ({
      payload: Buffer.from(payload),
      jobId,
      delayMs,
      maxAttempts,
    }));
    this.#ask(
      { f: "put", jobs },
      (engine) => {
        const call = engine.newCall();
        engine.send([{ ...putCommand(call.id, ["?"], { queue, lockMs: 1000, ...limit }), entries }]);
        return call;
      },
      (call) => this.#known(call.put ?? []),
    );
  }

  #known<T extends { readonly id: number }>(put: readonly T[]): { put: readonly T[] } {
    this.#world.knownIds.push(...put.map(({ id }) => id));
    return { put };
  }

  #newJob(queue: string): AskedJob {
    const { random } = this.#world;
    const jobId = random.chance(0.2) ? `id ${random.between(1, 5)}` : undefined;
    const delayMs = random.chance(0.2) ? random.pick([20, 700, 3000]) : 0;
    return { queue, payload: this.#world.newName(), jobId, delayMs, maxAttempts: random.between(1, 4) };
  }

  /** An event for some of the queues. */
  #newEvent(): AskedJob[] {
    const { random, queues } = this.#world;
    const payload = this.#world.newName();
    const again = random.chance(0.2);
    const jobId = again ? `event ${random.between(1, 3)}` : payload;
    const key = again ? undefined : `key of ${payload}`;
    const to = random.chance(0.5) ? queues : [random.pick(queues)];
    return to.map((queue) => ({ queue, payload, jobId, key, maxAttempts: 3 }));
  }

  dispatch(): void {
    const jobs = this.#newEvent();
    this.#ask(
      { f: "put", jobs },
      (engine) => engine.dispatch([eventOf(jobs as Parameters<typeof eventOf>[0])]),
      (call) => this.#known((call.answer?.dispatched ?? []).flat()),
    );
  }

  claim(): void {
    const { random, queues } = this.#world;
    const waitMs = random.pick([0, 100, 5000]);
    const byConsumer = this.#consumer !== undefined && random.chance(0.7);
    const slot = byConsumer ? this.#freeSlot() : undefined;
    if (byConsumer && slot === undefined) return;
    const { queue, leaseMs } = byConsumer
      ? this.#consumes
      : { queue: random.pick(queues), leaseMs: random.pick(LEASES_MS) };
    const limit = byConsumer ? 1 : random.between(1, 3);
    const asked: ClaimCall = { f: "claim", queue, limit, leaseMs, ...(byConsumer ? { renews: true } : {}) };
    this.#claim(asked, waitMs, slot);
    if (slot !== undefined) this.#claiming.add(slot);
  }

  #claim(asked: ClaimCall, waitMs: number, slot?: number): void {
    const { queue, limit, leaseMs } = asked;
    const consumer = slot === undefined ? {} : { consumer: this.#consumer?.id, slot };
    this.#ask(
      asked,
      (engine) => engine.claim({ queue, limit, leaseMs, waitMs, ...consumer }),
      (call) => this.#take(call, queue, slot),
    );
  }

  readonly #claiming = new Set<number>();

  #freeSlot(): number | undefined {
    const taken = new Set([...this.#held.map(({ slot }) => slot), ...this.#slotsUnderWay()]);
    return Array.from({ length: SLOTS }, (_, slot) => slot).find((slot) => !taken.has(slot));
  }

  #slotsUnderWay(): Iterable<number> {
    if (this.#underWay.length === 0) this.#claiming.clear();
    return this.#claiming;
  }

  #take(call: Call, queue: string, slot: number | undefined): Result {
    if (slot !== undefined) this.#claiming.delete(slot);
    const deliveries = call.claimed ?? [];
    // What this program was too slow to start is given to others.
    if (slot !== undefined && deliveries.length > 0 && !this.#consumer?.start(slot)) {
      return { deliveries: [], dropped: deliveries.map(({ id }) => id) };
    }
    const taken = deliveries.map(({ id, receipt, payload, attempt, leaseUntil }) => {
      this.#held.push({ id, receipt, queue, slot });
      return { id, receipt, payload: Buffer.from(payload).toString(), attempt, leaseUntil };
    });
    return { deliveries: taken };
  }

  /** Ends one of the deliveries; now and then the program forgets that it did, and does it again. */
  settle(): void {
    const { random } = this.#world;
    const held = this.#held.length === 0 ? undefined : random.pick(this.#held);
    if (held === undefined) return;
    this.#settle(held, random.weighted({ ack: 5, nack: 2, fail: 1, release: 1, emit: 2 }));
  }

  /** Puts and claims so many of one queue, and acknowledges them at once, that each becomes one statement. */
  rush(): void {
    const { random, queues } = this.#world;
    const queue = random.pick(queues);
    const many = random.between(20, 40);
    for (let i = 0; i < many; i++) this.#put([{ ...this.#newJob(queue), jobId: undefined, delayMs: 0 }]);
    this.step();
    this.#claim({ f: "claim", queue, limit: many, leaseMs: random.pick(LEASES_MS) }, 0);
    this.step();
    this.hear();
    for (const held of this.#held.filter((each) => each.queue === queue)) this.#settle(held, "ack");
  }

  #settle(held: Holding, how: SettleCall["how"] | "emit"): void {
    const { random } = this.#world;
    if (!random.chance(0.05)) this.#held = this.#held.filter((other) => other !== held);
    const delayMs = how === "nack" ? random.pick([0, 30, 800]) : undefined;
    const emits = how === "emit" ? this.#newEvent() : undefined;
    const { id, receipt } = held;
    const call: SettleCall = { f: "settle", how: how === "emit" ? "ack" : how, id, receipt, delayMs, emits };
    this.#ask(
      call,
      (engine) => {
        const made = engine.newCall();
        const move = this.#moveOf(how, delayMs ?? 0);
        const { origin } = putCommand(made.id, ["?"], { queue: held.queue });
        const emit = emits && { events: [eventOf(emits as Parameters<typeof eventOf>[0])], bytes: 10 };
        engine.send([{ op: "settle", id: made.id, origin, lockMs: 1000, lease: { id, receipt }, move, emit }]);
        return made;
      },
      (made) => ({ state: made.answer?.settled ?? "ready" }),
    );
  }

  #moveOf(how: SettleCall["how"] | "emit", delayMs: number): Settlement {
    switch (how) {
      case "nack":
        return { event: "nack", delayMs, lastError: "no", exhaustedReason: EXHAUSTED };
      case "fail":
        return { event: "fail", lastError: "no", reason: "rejected", category: undefined };
      case "release": {
        const backoff = { initialMs: 50, maxMs: 1000, lastError: "not here", exhaustedReason: EXHAUSTED };
        return this.#world.random.chance(0.5) ? { event: "release" } : { event: "release", backoff };
      }
      default:
        return { event: "ack" };
    }
  }

  extend(): void {
    const { random } = this.#world;
    const held = this.#held.filter(({ slot }) => slot === undefined);
    if (held.length === 0) return;
    const { id, receipt, queue } = random.pick(held);
    const ms = random.pick(LEASES_MS);
    this.#ask(
      { f: "extend", id, receipt, ms },
      (engine) => {
        const made = engine.newCall();
        const { origin } = putCommand(made.id, ["?"], { queue });
        engine.send([{ op: "extend", id: made.id, origin, lockMs: 1000, lease: { id, receipt }, ms }]);
        return made;
      },
      (made) => ({ leaseUntil: made.answer?.extended ?? 0 }),
    );
  }

  /** What an operator does: removes, replays, purges. */
  operate(): void {
    const { random, knownIds, queues } = this.#world;
    const queue = random.pick(queues);
    const f = random.weighted({ remove: 3, replay: 3, discard: 1, purge: 1, replayAll: 1 });
    const count = (made: Call): Result => ({ changed: made.answer?.changed ?? 0 });
    const send = (engine: TestEngine, command: object): Call => {
      const made = engine.newCall();
      const { origin } = putCommand(made.id, ["?"], { queue });
      engine.send([{ id: made.id, origin, lockMs: 1000, ...command } as never]);
      return made;
    };
    if (f === "purge" || f === "replayAll") {
      const sweep =
        f === "purge"
          ? { kind: "purge", olderThanMs: 500, includeFailed: random.chance(0.5) }
          : { kind: "retryFailed" };
      this.#ask({ f, queue }, (engine) => send(engine, { op: "sweep", sweep }), count);
    } else if (knownIds.length > 0) {
      const id = random.pick(knownIds);
      this.#ask({ f, id }, (engine) => send(engine, { op: "alter", verb: f, job: id }), count);
    }
  }
}

const LIBRARIES = [sqliteError, builtInError];

/** An error of SQLite as one of the libraries throws it. */
export function errorOf(random: Random, ...names: Parameters<typeof sqliteError>[0][]): Error {
  return random.pick(LIBRARIES)(random.pick(names));
}
