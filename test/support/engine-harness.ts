import { onTestFinished } from "vitest";
import type { JobState } from "../../dist/state.js";
import { cellTime, SLOT } from "../../dist/storage/handler-cells.js";
import type { ConflictOnWire, Refused } from "../../dist/storage/refusals.js";
import type { ConsumerOnWire, HeldOnWire, LeaseNews } from "../../dist/storage/slot-consumer.js";
import { Connection } from "../../dist/storage/sqlite/connection.js";
import { type Driver, loadDriver, type Row } from "../../dist/storage/sqlite/driver.js";
import { Engine } from "../../dist/storage/sqlite/engine.js";
import {
  type AlterCommand,
  type Answer,
  type ClaimCommand,
  type Command,
  type ErrorOnWire,
  type FromEngine,
  type NewEvent,
  type NewEvents,
  type Origin,
  type PutCommand,
  SIGNAL,
  SIGNALS,
  type SweepRequest,
  WATCH,
} from "../../dist/storage/sqlite/protocol.js";
import type { Delivery, Enqueued, Lease, QueueStats, Settlement } from "../../dist/storage/storage.js";

/** Both clocks, moved by hand. */
export class TestClock {
  /** Milliseconds since the epoch. */
  wall = 1_800_000_000_000;
  /** Milliseconds since any moment. */
  monotonic = 5_000_000;

  /** Time passes. */
  advance(ms: number): void {
    this.wall += ms;
    this.monotonic += ms;
  }
}

/** A command that was given to the engine, and its answer. */
export class Call {
  readonly id: number;
  answer: (Answer & Partial<AnswerFields>) | undefined;

  constructor(id: number) {
    this.id = id;
  }

  get answered(): boolean {
    return this.answer !== undefined;
  }

  get put(): readonly Enqueued[] | undefined {
    return this.answer?.put;
  }

  get claimed(): readonly Delivery[] | undefined {
    return this.answer?.claimed;
  }

  /** The one delivery of a claim. */
  get delivery(): Delivery {
    const [delivery] = this.claimed ?? [];
    if (delivery === undefined) throw new Error(`no delivery: ${JSON.stringify(this.answer)}`);
    return delivery;
  }

  get error(): ErrorOnWire | undefined {
    return this.answer?.error;
  }
}

interface AnswerFields {
  readonly put: readonly Enqueued[];
  readonly dispatched: readonly Enqueued[][];
  readonly claimed: readonly Delivery[];
  readonly settled: JobState;
  readonly extended: number;
  readonly reclaimed: number;
  readonly stats: QueueStats;
  readonly changed: number;
  readonly refused: Refused;
  readonly conflict: ConflictOnWire;
  readonly error: ErrorOnWire;
}

export interface TestEngineOptions {
  readonly directory: string;
  readonly driver?: Driver;
  readonly clock?: TestClock;
  /** Leaves out the first transaction, which the engine would otherwise have behind it. */
  readonly idle?: boolean;
  /**
   * Whether transactions hold the lock for as long as they really do, by which an engine leaves gaps for other writers.
   * Otherwise they take no time, as by the test's clock: what a test sees does not depend on the machine's load.
   */
  readonly realHold?: boolean;
  /** The caller closes it; otherwise the end of the test does. */
  readonly closedByCaller?: boolean;
}

interface ElapseOptions {
  readonly ticking?: boolean;
}

type PutOptions = Partial<Origin & Pick<PutCommand, "lockMs" | "waitMs">> & {
  readonly jobId?: string;
  readonly delayMs?: number;
  readonly maxAttempts?: number;
  readonly context?: string | undefined;
};

type ClaimOptions = Partial<Omit<ClaimCommand, "op" | "id" | "origin"> & Pick<Origin, "queue" | "fsync" | "text">>;

const QUEUE = "default";
const TICK_MS = 250;

/** An engine on a real file, without its thread: time, messages and answers are in the test's hands. */
export class TestEngine {
  readonly clock: TestClock;
  readonly signals: Int32Array = new Int32Array(new SharedArrayBuffer(SIGNALS * 4));
  readonly connection: Connection;
  readonly engine: Engine;
  readonly news: LeaseNews[] = [];
  /** Batches whose commands have all been dealt with, as the client is told. */
  batchesDone = 0;
  watchesAskedFor = 0;
  readonly #calls = new Map<number, Call>();
  #ids = 0;

  constructor(options: TestEngineOptions) {
    const { directory, driver = loadDriver(), clock = new TestClock(), idle = false, realHold = false } = options;
    this.clock = clock;
    this.connection = new Connection({ directory, driver });
    if (!realHold) Object.defineProperty(this.connection, "heldMs", { get: () => 0, set: () => {} });
    this.engine = new Engine({
      connection: this.connection,
      post: (message) => this.#receive(message),
      signals: this.signals,
      clock: () => clock.wall,
      monotonic: () => clock.monotonic,
    });
    Atomics.store(this.signals, SIGNAL.watch, WATCH.armed);
    this.tick();
    if (!options.closedByCaller) onTestFinished(() => this.close());
    if (!idle) this.#warmUp();
  }

  /** An engine that was just opened leaves gaps for other writers, whom it might not have noticed yet. */
  #warmUp(): void {
    this.reclaim();
    this.step();
    this.clock.advance(2000);
    this.tick();
  }

  close(): void {
    this.engine.close();
  }

  #receive(message: FromEngine): void {
    if (message.kind !== "reply") return;
    this.news.push(...message.news);
    this.batchesDone += message.batches;
    if (message.watch) this.watchesAskedFor++;
    // As if somebody beside it had moved nothing.
    if (message.moveLog) this.engine.receive({ kind: "logMoved" });
    for (const answer of message.answers) {
      const call = this.#calls.get(answer.id);
      if (call === undefined) throw new Error(`an answer to nothing: ${JSON.stringify(answer)}`);
      if (call.answer !== undefined) throw new Error(`answered twice: ${JSON.stringify([call.answer, answer])}`);
      call.answer = answer;
    }
  }

  /** The text of a delivered payload. */
  textOf(delivery: Delivery): string {
    return Buffer.from(delivery.payload).toString();
  }

  /** The client shows that it is alive. */
  tick(): void {
    Atomics.store(this.signals, SIGNAL.tick, cellTime(this.clock.monotonic));
  }

  /** Gives the engine commands in one message. */
  send(commands: readonly Command[]): void {
    this.tick();
    this.engine.receive({ kind: "batch", commands });
  }

  newCall(): Call {
    const call = new Call(++this.#ids);
    this.#calls.set(call.id, call);
    return call;
  }

  #command(make: (id: number) => Command): Call {
    const call = this.newCall();
    this.send([make(call.id)]);
    return call;
  }

  put(payload: string | Uint8Array, options: PutOptions = {}): Call {
    return this.putMany([payload], options);
  }

  putMany(payloads: readonly (string | Uint8Array)[], options: PutOptions = {}): Call {
    return this.#command((id) => putCommand(id, payloads, options));
  }

  dispatch(events: readonly Partial<NewEvent>[]): Call {
    return this.#command((id) => ({ op: "dispatch", ...base(id), ...newEvents(events) }));
  }

  /** Acknowledges a job, with what its handler made of it. */
  emit({ id: job, receipt }: Lease, events: readonly Partial<NewEvent>[]): Call {
    const settlement = { lease: { id: job, receipt }, move: { event: "ack" }, emit: newEvents(events) } as const;
    return this.#command((id) => ({ op: "settle", ...base(id), ...settlement }));
  }

  claim({ queue, fsync, text, ...options }: ClaimOptions = {}): Call {
    return this.#command((id) => ({
      op: "claim",
      ...base(id, { queue, fsync, text }),
      lockMs: 50,
      limit: 1,
      leaseMs: 10_000,
      waitMs: 0,
      ...options,
    }));
  }

  settle({ id: job, receipt }: Lease, move: Settlement, lockMs = 30_000): Call {
    return this.#command((id) => ({ op: "settle", ...base(id), lockMs, lease: { id: job, receipt }, move }));
  }

  ack(lease: Lease): Call {
    return this.settle(lease, { event: "ack" });
  }

  extend({ id: job, receipt }: Lease, ms: number): Call {
    return this.#command((id) => ({ op: "extend", ...base(id), lease: { id: job, receipt }, ms }));
  }

  reclaim(): Call {
    return this.#command((id) => ({ op: "reclaim", ...base(id) }));
  }

  alter(verb: AlterCommand["verb"], job: number, maxPending?: number): Call {
    return this.#command((id) => ({ op: "alter", ...base(id, { maxPending }), verb, job }));
  }

  sweep(sweep: SweepRequest, { maxPending, lockMs = 30_000 }: PutOptions = {}): Call {
    return this.#command((id) => ({ op: "sweep", ...base(id, { maxPending }), lockMs, sweep }));
  }

  purge(olderThanMs: number, includeFailed = false): Call {
    return this.sweep({ kind: "purge", olderThanMs, includeFailed });
  }

  stats(queue: string = QUEUE): Call {
    return this.#command((id) => ({ op: "stats", ...base(id, { queue }) }));
  }

  stopWaiting(session = 1): void {
    this.engine.receive({ kind: "stopWaiting", session });
  }

  abort(call: Call): void {
    this.engine.receive({ kind: "abort", id: call.id });
  }

  consume(settings: Partial<ConsumerOnWire> = {}, held: readonly HeldOnWire[] = []): TestConsumer {
    return new TestConsumer(this, ++this.#ids, settings, held);
  }

  step(): number {
    return this.engine.step();
  }

  /** Lets the engine work until there is nothing to do for a while. Each step takes a millisecond. */
  run(): void {
    for (let steps = 0; steps <= 1000; steps++) {
      const wait = this.step();
      if (wait >= 5) return;
      this.clock.advance(Math.max(1, Math.ceil(wait)));
    }
    throw new Error("the engine spins");
  }

  /** Time passes for engine and client; with `ticking: false` the client's thread is blocked meanwhile. */
  elapse(ms: number, { ticking = true }: ElapseOptions = {}): void {
    const end = this.clock.monotonic + ms;
    for (let spins = 0; spins <= 1000; ) {
      if (ticking) this.tick();
      const wait = this.step();
      const left = end - this.clock.monotonic;
      if (left <= 0) return;
      spins = wait > 0 ? 0 : spins + 1;
      this.clock.advance(Math.min(Math.max(1, Math.ceil(wait)), left, ticking ? TICK_MS : left));
    }
    throw new Error("the engine spins");
  }

  /** What another process does to the file. */
  foreign(sql: string): void {
    const database = loadDriver().open(this.connection.file);
    try {
      database.exec(sql);
    } finally {
      database.close();
    }
  }

  /** What the file holds, read through a connection of its own. */
  rows(sql = "SELECT * FROM messages ORDER BY id"): Row[] {
    return readRows(this.connection.file, sql);
  }

  /** The stored payloads as text, in the order of their ids. */
  stored(): string[] {
    return this.rows().map(({ payload }) => Buffer.from(payload as Uint8Array).toString());
  }
}

/** A worker's side of the engine: slots, and the cells in which handlers are started. */
export class TestConsumer {
  readonly id: number;
  readonly cells: Int32Array;
  readonly #engine: TestEngine;
  readonly #leaseMs: number;

  constructor(engine: TestEngine, id: number, settings: Partial<ConsumerOnWire>, held: readonly HeldOnWire[]) {
    this.id = id;
    this.#engine = engine;
    this.#leaseMs = settings.leaseMs ?? 10_000;
    const slots = settings.slots ?? 4;
    const cells = settings.cells ?? new SharedArrayBuffer(slots * 4);
    this.cells = new Int32Array(cells);
    engine.engine.receive({
      kind: "consume",
      consumer: id,
      held,
      settings: {
        queue: QUEUE,
        fsync: false,
        slots,
        leaseMs: this.#leaseMs,
        heartbeatMs: this.#leaseMs / 4,
        timeoutMs: undefined,
        graceMs: 1000,
        maxAttempts: undefined,
        retention: undefined,
        ...settings,
        cells,
      },
    });
  }

  claim(slot = 0, options: ClaimOptions = {}): Call {
    return this.#engine.claim({ consumer: this.id, slot, leaseMs: this.#leaseMs, ...options });
  }

  /** Claims a job that is there, and starts its handler. */
  work(slot = 0): Delivery {
    const claim = this.claim(slot);
    this.#engine.run();
    if (!this.start(slot)) throw new Error("the delivery was taken back");
    return claim.delivery;
  }

  start(slot = 0): boolean {
    const now = cellTime(this.#engine.clock.monotonic);
    return Atomics.compareExchange(this.cells, slot, SLOT.waiting, now) === SLOT.waiting;
  }

  dismiss(): void {
    this.#engine.engine.receive({ kind: "dismiss", consumer: this.id });
  }
}

function base(
  id: number,
  {
    session = 1,
    queue = QUEUE,
    fsync = false,
    text = false,
    maxPending,
  }: { [K in keyof Origin]?: Origin[K] | undefined } = {},
): { id: number; origin: Origin; lockMs: number } {
  return { id, origin: { session, queue, fsync, text, maxPending }, lockMs: 30_000 };
}

export function putCommand(
  id: number,
  payloads: readonly (string | Uint8Array)[],
  options: PutOptions = {},
): PutCommand {
  const { jobId = null, delayMs = 0, maxAttempts = 4, context, lockMs = 30_000, waitMs, ...origin } = options;
  const entries = payloads.map((payload) => ({ payload: Buffer.from(payload), jobId, delayMs, maxAttempts, context }));
  const bytes = entries.reduce((sum, { payload }) => sum + payload.length, 0);
  return { op: "put", ...base(id, origin), lockMs, waitMs, entries, bytes };
}

function newEvents(given: readonly Partial<NewEvent>[]): NewEvents {
  const usual = { payload: "event", jobId: "event", queues: [QUEUE], identity: undefined, maxAttempts: 4 };
  const events = given.map((each) => ({ ...usual, ...each }));
  return { events, bytes: events.reduce((sum, { payload, queues }) => sum + payload.length * queues.length, 0) };
}

/** Reads a database through a connection of its own, which leaves no trace. */
export function readRows(file: string, sql: string): Row[] {
  const database = loadDriver().open(file);
  try {
    return database.prepare(sql).all();
  } finally {
    database.close();
  }
}
