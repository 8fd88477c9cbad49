import { onAbort } from "../../abort.ts";
import { clearTimeout, monotonicNow, setTimeout, settlesWithin } from "../../timers.ts";
import type { PostgresTarget } from "../postgres-target.ts";
import { flooded, refusal, tooLarge } from "../refusals.ts";
import type { Enqueued } from "../storage.ts";
import { type AlterInput, performAlterations } from "./alterations.ts";
import { Chores } from "./chores.ts";
import { type Outlook, QueueClaims, type Waiter } from "./claims.ts";
import { type DispatchInput, type DispatchResult, performDispatches } from "./dispatches.ts";
import { type HolderInput, type HolderResult, performEndings } from "./endings.ts";
import { LeaseKeeper } from "./keeper.ts";
import { Lane, type Outcome } from "./lane.ts";
import { Looks } from "./looks.ts";
import { Notices } from "./notices.ts";
import { Order, type Origin, patienceMs } from "./order.ts";
import { type NewJob, performPuts } from "./puts.ts";
import { RoomLine } from "./room.ts";
import { query, type Row } from "./rows.ts";
import { Runner } from "./runner.ts";
import { type Statements, statementsOf } from "./statements.ts";
import type { Transaction } from "./transaction.ts";

/** What callers may have under way before they are refused: a producer that never waits must not fill the memory. */
const BUFFERED_BYTES = 256 * 1024 * 1024;
/** What an order costs beside its payload, roughly. */
const ORDER_BYTES = 256;
/** What was accepted by a storage that closes waits no longer than this for a lock or the server. */
const CLOSING_MS = 500;

/** So long whoever looks waits for what was asked for before. */
const LOOK_AFTER_MS = 100;

/** What a caller asks for. */
export interface Demand<Input> {
  readonly input: Input;
  /** The payloads' size. */
  readonly bytes?: number;
  readonly lockMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** By what connections are shared: a pool is one of a kind. */
const clients = new Map<unknown, Map<string, Client>>();

type Perform<Input, Result> = (
  sql: Statements,
  transaction: Transaction,
  orders: readonly Order<Input, Result>[],
) => Promise<Outcome<Result>>;

/**
 * This JavaScript thread's side of one schema of a database: gathers what its callers ask for into batches, hands out
 * work as it appears, keeps the leases of consumers alive. Shared by every queue, worker and bus on it.
 */
export class Client {
  readonly runner: Runner;
  readonly sql: Statements;
  readonly keeper: LeaseKeeper;
  readonly chores: Chores;
  readonly puts: Lane<readonly NewJob[], Enqueued[]>;
  readonly endings: Lane<HolderInput, HolderResult>;
  readonly dispatches: Lane<DispatchInput, DispatchResult>;
  readonly alterations: Lane<AlterInput, number>;
  readonly #target: PostgresTarget;
  readonly #looks: Looks;
  readonly #notices: Notices;
  readonly #claims = new Map<string, QueueClaims>();
  readonly #rooms = new Map<string, RoomLine>();
  readonly #returning = new Map<string, Set<Promise<void>>>();
  #buffered = 0;
  #users = 0;
  #poll: ReturnType<typeof setTimeout> | undefined;

  private constructor(target: PostgresTarget) {
    this.#target = target;
    this.sql = statementsOf(target.schema);
    this.runner = new Runner(target);
    this.keeper = new LeaseKeeper(target, this.runner);
    this.puts = this.#lane(performPuts);
    this.endings = this.#lane(performEndings);
    this.dispatches = this.#lane(performDispatches);
    this.alterations = this.#lane(performAlterations);
    this.#looks = new Looks(this.runner, this.sql);
    this.#notices = new Notices({
      target,
      send: (text, values) => this.runner.read(({ client }) => query(client, text, values)),
      heard: (queue) => this.#heard(queue),
    });
    this.chores = new Chores({
      runner: this.runner,
      sql: this.sql,
      consumers: () => this.keeper.consumers,
      changed: (queues) => this.stirred(queues),
    });
  }

  #lane<Input, Result>(perform: Perform<Input, Result>): Lane<Input, Result> {
    return new Lane<Input, Result>({
      runner: this.runner,
      perform: (transaction, orders) => perform(this.sql, transaction, orders),
      committed: (outcome) => this.#committed(outcome),
    });
  }

  /** The client of a target; to be given back by `release`. */
  static acquire(target: PostgresTarget): Client {
    const [place, schema] = placeOf(target);
    let bySchema = clients.get(place);
    if (bySchema === undefined) {
      bySchema = new Map();
      clients.set(place, bySchema);
    }
    let client = bySchema.get(schema);
    if (client === undefined) {
      client = new Client(target);
      bySchema.set(schema, client);
    }
    client.#users++;
    return client;
  }

  /** Asks for something in a batch. */
  request<Input, Result>(lane: Lane<Input, Result>, origin: Origin, demand: Demand<Input>): Promise<Result> {
    return this.#order(origin, demand, (order: Order<Input, Result>) => lane.add(order));
  }

  /** A put into a queue with a limit waits in line, for room until then. */
  requestRoom(
    origin: Origin & { readonly maxPending: number },
    demand: Demand<readonly NewJob[]>,
    { roomBy, closing }: { readonly roomBy: number; readonly closing: boolean },
  ): Promise<Enqueued[]> {
    return this.#order(origin, demand, (order: Order<readonly NewJob[], Enqueued[]>) => {
      this.#roomOf(origin.queue, origin.maxPending).add({ order, roomBy, closing, waiting: false });
      this.#notices.listen();
    });
  }

  #order<Input, Result>(
    origin: Origin,
    { input, bytes = 0, lockMs, signal }: Demand<Input>,
    add: (order: Order<Input, Result>) => void,
  ): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      if (signal?.aborted) throw signal.reason;
      const cost = bytes + ORDER_BYTES;
      if (cost > BUFFERED_BYTES) throw tooLarge(bytes, BUFFERED_BYTES);
      if (this.#buffered + cost > BUFFERED_BYTES) throw flooded(this.runner.place, BUFFERED_BYTES);
      const forget = signal && onAbort(signal, () => order.withdraw(signal.reason));
      const over = (): void => {
        this.#buffered -= cost;
        forget?.();
        origin.tally.end();
      };
      const endsAt = monotonicNow() + patienceMs(lockMs);
      const order = new Order<Input, Result>(input, origin, { bytes, endsAt }, { resolve, reject, over });
      this.#buffered += cost;
      origin.tally.begin();
      add(order);
    });
  }

  #roomOf(queue: string, limit: number): RoomLine {
    const key = `${limit} ${queue}`;
    let line = this.#rooms.get(key);
    if (line === undefined) {
      const committed = (outcome: Outcome<unknown>): void => this.#committed(outcome);
      line = new RoomLine({ queue, limit, runner: this.runner, sql: this.sql, committed });
      this.#rooms.set(key, line);
    }
    return line;
  }

  /** Hands a claim to those that wait in its queue. */
  claim(waiter: Waiter): void {
    const claims = this.#claimsOf(waiter.origin.queue);
    claims.add(waiter);
    this.#notices.listen();
    this.#keepPolling();
  }

  #claimsOf(queue: string): QueueClaims {
    let claims = this.#claims.get(queue);
    if (claims === undefined) {
      claims = new QueueClaims({
        queue,
        runner: this.runner,
        sql: this.sql,
        look: (name) => this.#looks.at(name),
        returned: (name) => this.#returned(name),
        claimed: (name, now, { ended, promoted }) => this.#claimed(name, now, ended, promoted),
      });
      this.#claims.set(queue, claims);
    }
    return claims;
  }

  #claimed(queue: string, now: number, ended: boolean, promoted: boolean): void {
    this.chores.counted(queue);
    this.chores.seen(now);
    if (!ended && !promoted) return;
    if (ended) this.#freed([queue]);
    this.#notices.announce([queue]);
  }

  /** Resolves when those who wait in these queues have got what there is, unless that takes long. */
  async served(queues: readonly string[]): Promise<void> {
    const serving = queues.map((queue) => this.#claims.get(queue)?.served());
    await settlesWithin(Promise.all(serving), LOOK_AFTER_MS);
  }

  /** A job is being given back: claims of its queue that come later wait for it, since it may be the first. */
  async returning<T>(queue: string, giving: Promise<T>): Promise<T> {
    const giver = giving.then(ignore, ignore);
    const givers = this.#returning.get(queue) ?? new Set();
    this.#returning.set(queue, givers.add(giver));
    try {
      return await giving;
    } finally {
      givers.delete(giver);
      if (givers.size === 0) this.#returning.delete(queue);
    }
  }

  #returned(queue: string): Promise<void> | undefined {
    const givers = this.#returning.get(queue);
    return givers && settlesWithin(Promise.all(givers), LOOK_AFTER_MS).then(ignore);
  }

  /** Ends claims of a storage that closes, or whose caller has lost interest. */
  withdrawClaims(queue: string, which: (waiter: Waiter) => boolean, reason: unknown): void {
    this.#claims.get(queue)?.withdraw(which, reason);
  }

  /** A job was given back for a while, until then, so that others can take it first. */
  left(queue: string, dueAt: number): void {
    this.#claimsOf(queue).left(dueAt);
  }

  /** Resolves when what was asked for before was tried, unless that takes long: who looks then sees it. */
  async passed(): Promise<void> {
    const lanes = [this.puts, this.endings, this.dispatches, this.alterations];
    const tried = Promise.all(lanes.map((lane) => lane.passed())).then(() =>
      Promise.all([...this.#rooms.values()].map((line) => line.passed())),
    );
    await settlesWithin(tried, LOOK_AFTER_MS);
  }

  /** Reads something; the database is waited for if it was there before. With a `signal`, for as long as it takes. */
  read(text: string, values: readonly unknown[], signal?: AbortSignal): Promise<Row[]> {
    return this.#looks.read(text, values, signal);
  }

  #committed({ stirred = [], freed = [] }: Outcome<unknown>): void {
    const queues = [...stirred];
    for (const queue of queues) this.chores.counted(queue);
    this.#freed(freed);
    this.stirred(queues);
  }

  /** There may be more to claim in these queues: here, and wherever else somebody waits. */
  stirred(queues: readonly string[]): void {
    for (const queue of queues) this.#claims.get(queue)?.check();
    this.#notices.announce(queues);
  }

  /** A sweep has changed jobs of a queue. */
  swept(queue: string): void {
    this.#committed({ answers: [], stirred: [queue], freed: [queue] });
  }

  #freed(queues: Iterable<string>): void {
    const freed = new Set(queues);
    for (const line of this.#rooms.values()) if (freed.has(line.queue)) line.check();
  }

  #heard(queue: string | undefined): void {
    if (queue === undefined) {
      for (const claims of this.#claims.values()) claims.check();
    } else {
      this.#claims.get(queue)?.check();
      this.#freed([queue]);
    }
  }

  /** As long as somebody waits for work: one look at all their queues, now and then, should a notice have been lost. */
  #keepPolling(): void {
    if (this.#poll !== undefined) return;
    this.#poll = setTimeout(() => void this.#lookAround(), this.#notices.pollMs);
  }

  async #lookAround(): Promise<void> {
    const waited = [...this.#claims].filter(([, claims]) => claims.waiting);
    if (waited.length > 0) {
      const outlooks = await Promise.all(waited.map(([queue]) => this.#glance(queue)));
      for (const [index, [, claims]] of waited.entries()) claims.see(outlooks[index]);
    }
    this.#poll = undefined;
    if (waited.length > 0) this.#keepPolling();
  }

  async #glance(queue: string): Promise<Outlook | undefined> {
    try {
      return await this.#looks.at(queue);
    } catch {
      // Whoever waits is to hear of it.
      return undefined;
    }
  }

  /** No put of this storage waits for room any more. */
  stopWaiting(origin: Origin): void {
    for (const line of this.#rooms.values()) {
      for (const put of line.puts) {
        if (put.order.origin !== origin) continue;
        put.closing = true;
        if (put.waiting) put.order.withdraw(refusal("closed", undefined));
      }
    }
  }

  /** Withdraws a storage's waiting claims at once, and bounds what else it has under way. */
  closeSession(origin: Origin): void {
    const latest = monotonicNow() + CLOSING_MS;
    for (const claims of this.#claims.values()) {
      claims.withdraw((waiter) => waiter.origin === origin, refusal("closed", undefined));
    }
    for (const lane of [this.puts, this.endings, this.dispatches, this.alterations]) lane.close(origin);
    for (const line of this.#rooms.values()) {
      for (const { order } of line.puts) if (order.origin === origin) order.endsAt = Math.min(order.endsAt, latest);
    }
  }

  /** Gives the client back; the last one to do so ends its connections. */
  async release(): Promise<void> {
    this.#users--;
    if (this.#users > 0) return;
    const [place, schema] = placeOf(this.#target);
    if (clients.get(place)?.get(schema) === this) clients.get(place)?.delete(schema);
    if (clients.get(place)?.size === 0) clients.delete(place);
    clearTimeout(this.#poll);
    await Promise.all([this.#notices.end(), this.keeper.end(), settlesWithin(this.chores.end(), CLOSING_MS)]);
    await this.runner.end();
  }
}

function placeOf({ pool, connectionString, settings, schema }: PostgresTarget): [place: unknown, schema: string] {
  return [pool ?? settings ?? connectionString ?? "", schema];
}

function ignore(): void {}
