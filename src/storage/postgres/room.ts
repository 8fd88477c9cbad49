import { clearInterval, clearTimeout, monotonicNow, queueMicrotask, setInterval, setTimeout } from "../../timers.ts";
import { refusal } from "../refusals.ts";
import type { Enqueued } from "../storage.ts";
import { loadOf } from "./alterations.ts";
import { toStorageError } from "./failures.ts";
import type { Outcome } from "./lane.ts";
import { type Order, tooBusy } from "./order.ts";
import { type NewJob, performPuts, queuesAndIds } from "./puts.ts";
import { query } from "./rows.ts";
import { firstPause, longer, pauseFor, type Runner, type Trouble, troubleOf } from "./runner.ts";
import type { Statements } from "./statements.ts";
import type { Transaction } from "./transaction.ts";

/** How often to look for room that others have made. */
const POLL_MS = 100;
/** So many go into one transaction. */
const BATCH_PUTS = 1000;
const BATCH_BYTES = 1024 * 1024;

/** A put into a queue that may hold only so many jobs. Times are by the monotonic clock. */
export interface LimitedPut {
  readonly order: Order<readonly NewJob[], Enqueued[]>;
  /** When to stop waiting for room; in the past = do not wait. */
  roomBy: number;
  /** Its queue closes: there will be no more room for it. */
  closing: boolean;
  /** It was tried, and there was no room: it only waits for that. */
  waiting: boolean;
}

type Verdict = "put" | "waits" | "full" | "oversized" | "closed";

export interface RoomLineOptions {
  readonly queue: string;
  readonly limit: number;
  readonly runner: Runner;
  readonly sql: Statements;
  readonly committed: (outcome: Outcome<Enqueued[]>) => void;
}

/**
 * The puts into one queue under one limit, in the order in which they came. Each is tried once; those for which there is
 * no room wait here, and are served from the front, up to the first that has to wait on.
 */
export class RoomLine {
  readonly queue: string;
  readonly #options: RoomLineOptions;
  #puts: LimitedPut[] = [];
  /** There may be room. */
  #check = false;
  #serving = false;
  #tried: (() => void)[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: RoomLineOptions) {
    this.queue = options.queue;
    this.#options = options;
  }

  get puts(): readonly LimitedPut[] {
    return this.#puts;
  }

  add(put: LimitedPut): void {
    this.#puts.push(put);
    this.check();
  }

  /** There may be room, or somebody's time may be up. */
  check(): void {
    this.#check = true;
    if (this.#serving || this.#puts.length === 0) return;
    this.#serving = true;
    queueMicrotask(() => void this.#serve());
  }

  /** Resolves when all that is to be done now was tried. */
  async passed(): Promise<void> {
    await Promise.resolve();
    for (let tries = this.#check ? 2 : 1; this.#serving && tries > 0; tries--) {
      await new Promise<void>((resolve) => this.#tried.push(resolve));
    }
  }

  #endTry(): void {
    for (const resolve of this.#tried.splice(0)) resolve();
  }

  async #serve(): Promise<void> {
    for (let pause = firstPause(); this.#check && this.#puts.length > 0; ) {
      this.#check = false;
      const trouble = await this.#try();
      this.#forgetSettled();
      this.#endTry();
      if (trouble === "gone" || trouble === "crossed") {
        await pauseFor(pause);
        pause = longer(pause);
      }
    }
    this.#serving = false;
    this.#endTry();
    this.#plan();
  }

  #forgetSettled(): void {
    this.#puts = this.#puts.filter(({ order }) => !order.settled);
  }

  async #try(): Promise<Trouble | undefined> {
    const puts = this.#front();
    const { runner } = this.#options;
    const patience = setInterval(() => this.#giveUp(puts), POLL_MS);
    try {
      // Whoever has been told that there is no room only looks; nobody is kept waiting for a lock in vain.
      if (puts.every(({ waiting }) => waiting) && !(await this.#hasNews(puts))) return undefined;
      await this.#put(puts);
      if (puts.length < this.#puts.length) this.#settleRest(puts);
      return undefined;
    } catch (error) {
      const trouble = troubleOf(error);
      const failure = toStorageError(error, runner.place);
      const isTransient = runner.isTransient(trouble);
      const now = monotonicNow();
      if (!isTransient && puts.length > 1 && trouble === "lasting") await this.#putAlone(puts);
      for (const { order, waiting } of puts) {
        order.underWay = false;
        const isOver = isTransient ? order.endsAt <= now : puts.length === 1 || trouble !== "lasting";
        if (!waiting && isOver) order.fail(failure);
      }
      this.#check = isTransient || this.#puts.some(({ order }) => !order.settled);
      return trouble;
    } finally {
      clearInterval(patience);
    }
  }

  /** One of them cannot be put, and the others need not suffer for it. */
  async #putAlone(puts: readonly LimitedPut[]): Promise<void> {
    for (const put of puts) {
      if (!put.order.isWanted()) continue;
      try {
        await this.#put([put]);
      } catch (error) {
        put.order.fail(toStorageError(error, this.#options.runner.place));
      }
      // Whoever comes after one that waits is not to overtake it.
      if (put.waiting) return;
    }
  }

  /** No connection can be had for an attempt. */
  #giveUp(puts: readonly LimitedPut[]): void {
    const now = monotonicNow();
    for (const { order, waiting } of puts) {
      if (!order.underWay && !waiting && order.connectsBy <= now) order.fail(tooBusy(this.#options.runner.place));
    }
  }

  /** So many of the first as go into one transaction. */
  #front(): LimitedPut[] {
    const front: LimitedPut[] = [];
    let bytes = 0;
    for (const put of this.#puts) {
      bytes += put.order.bytes;
      if (front.length > 0 && (front.length === BATCH_PUTS || bytes > BATCH_BYTES)) break;
      if (put.order.isWanted()) front.push(put);
    }
    return front;
  }

  /** Whoever is behind those who wait, waits with them. */
  #settleRest(front: readonly LimitedPut[]): void {
    const last = front.at(-1);
    if (last === undefined || !last.waiting) {
      this.#check = true;
      return;
    }
    const now = monotonicNow();
    for (const put of this.#puts.slice(this.#puts.indexOf(last) + 1)) {
      if (put.closing) put.order.fail(refusal("closed", undefined));
      else if (put.roomBy <= now) put.order.fail(refusal("full", undefined));
      else put.waiting = true;
    }
  }

  /** Whether any of those who wait would be answered now. */
  async #hasNews(puts: readonly LimitedPut[]): Promise<boolean> {
    const { runner, sql, queue } = this.#options;
    const named = namedJobs(puts, queue);
    const [load, known] = await runner.read(async ({ client }) => {
      const [row] = await query(client, sql.load, [queue]);
      const rows = named.length === 0 ? [] : await query(client, sql.known, queuesAndIds(named));
      return [row?.["load"] as number, new Set(rows.map((each) => each["job_id"] as string))] as const;
    });
    return this.#judge(puts, load, known).some((verdict) => verdict !== "waits");
  }

  async #put(puts: readonly LimitedPut[]): Promise<void> {
    const { runner, sql, queue, committed } = this.#options;
    const fresh = puts.filter(({ waiting }) => !waiting);
    const ends = (fresh.length > 0 ? fresh : puts).map(({ order }) => order.endsAt);
    const attempt = {
      lockMs: Math.min(...ends) - monotonicNow(),
      fsync: puts.some(({ order }) => order.origin.fsync) || undefined,
      endsAt: () => Math.max(...ends),
    };
    let wanted: LimitedPut[] = [];
    const { verdicts, outcome } = await runner.run(attempt, async (transaction) => {
      // Some may have given up while a connection was waited for.
      wanted = puts.filter(({ order }) => order.isWanted());
      for (const { order } of wanted) order.underWay = true;
      const load = await loadOf(sql, transaction, queue);
      const judged = this.#judge(wanted, load, await this.#known(transaction, wanted));
      const accepted = wanted.filter((_, index) => judged[index] === "put").map(({ order }) => order);
      return { verdicts: judged, outcome: await performPuts(sql, transaction, accepted) };
    });
    committed(outcome);
    const answers = [...outcome.answers];
    for (const [index, put] of wanted.entries()) this.#answer(put, verdicts[index] as Verdict, answers);
  }

  #answer(put: LimitedPut, verdict: Verdict, answers: (Enqueued[] | Error)[]): void {
    const { order } = put;
    order.underWay = false;
    if (verdict === "put") order.succeed(answers.shift() as Enqueued[]);
    else if (verdict === "waits") put.waiting = true;
    else order.fail(refusal(verdict, undefined));
  }

  async #known(transaction: Transaction, puts: readonly LimitedPut[]): Promise<Set<string>> {
    const named = namedJobs(puts, this.#options.queue);
    if (named.length === 0) return new Set();
    const rows = await transaction.query(this.#options.sql.known, queuesAndIds(named));
    return new Set(rows.map((row) => row["job_id"] as string));
  }

  /** From the front; behind the first that has to wait only jobs that are known take no room. */
  #judge(puts: readonly LimitedPut[], load: number, known: ReadonlySet<string>): Verdict[] {
    const { limit } = this.#options;
    const added = new Set(known);
    const now = monotonicNow();
    let room = Math.max(0, limit - load);
    return puts.map((put) => {
      const rows = newRows(put, added);
      if (rows.length <= room) {
        room -= rows.length;
        for (const { jobId } of rows) if (jobId !== undefined) added.add(jobId);
        return "put";
      }
      if (rows.length > limit) return "oversized";
      if (put.closing) return "closed";
      if (put.roomBy <= now) return "full";
      room = 0;
      return "waits";
    });
  }

  /** Wakes up when somebody's time is up, and to look for room that others have made. */
  #plan(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#puts.length === 0) return;
    const now = monotonicNow();
    const ends = this.#puts.reduce((soonest, { roomBy }) => Math.min(soonest, roomBy), Number.POSITIVE_INFINITY);
    this.#timer = setTimeout(() => this.#wake(), Math.max(0, Math.min(POLL_MS, Math.ceil(ends - now))));
  }

  #wake(): void {
    const now = monotonicNow();
    // While somebody else writes, the queue may be full for all we know.
    for (const { order, waiting, roomBy } of this.#puts) {
      if (waiting && roomBy <= now && !order.underWay) order.fail(refusal("full", undefined));
    }
    this.#forgetSettled();
    this.check();
  }
}

function namedJobs(puts: readonly LimitedPut[], queue: string): { queue: string; jobId: string }[] {
  return puts.flatMap(({ order }) =>
    order.input.flatMap(({ jobId }) => (jobId === undefined ? [] : [{ queue, jobId }])),
  );
}

/** The jobs of a put that would take room. */
function newRows({ order }: LimitedPut, known: ReadonlySet<string>): NewJob[] {
  const own = new Set<string>();
  return order.input.filter(({ jobId }) => {
    if (jobId === undefined) return true;
    if (known.has(jobId) || own.has(jobId)) return false;
    own.add(jobId);
    return true;
  });
}
