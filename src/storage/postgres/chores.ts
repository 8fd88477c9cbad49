import { clearTimeout, monotonicNow, setTimeout } from "../../timers.ts";
import { ClockRule } from "../clock-rule.ts";
import type { ConsumerRecord } from "../slot-consumer.ts";
import type { Retention } from "../storage.ts";
import { query } from "./rows.ts";
import type { Runner } from "./runner.ts";
import type { Statements } from "./statements.ts";
import { retain } from "./sweeps.ts";

/** So many transactions of ours add a row of counts each, before those of a queue are drawn together. */
const COUNTS = 100;
const FIRST_PASS_MS = 1000;
/** From the end of a pass of retention to the next one, at least; and at least so many times what the last one took. */
const PASS_INTERVAL_MS = 60_000;
const PASS_INTERVALS = 100;
/** A clock that was set forward by so much is not believed for so long. */
const JUMP_MS = 60_000;
const JUMP_PAUSE_MS = 3_600_000;
/** Work that nobody waits for does not wait for others either. */
const LOCK_MS = 1000;

export interface ChoresOptions {
  readonly runner: Runner;
  readonly sql: Statements;
  readonly consumers: () => Iterable<ConsumerRecord>;
  /** Told of queues in which jobs may have become due. */
  readonly changed: (queues: readonly string[]) => void;
}

/** What a client does for the whole database, while it is at work: nobody waits for it, and what fails is done later. */
export class Chores {
  readonly #options: ChoresOptions;
  readonly #ending = new AbortController();
  readonly #clock = new ClockRule();
  /** By queue: rows of counts that this client has added since it last drew them together. */
  readonly #counts = new Map<string, number>();
  /** By how much the clock of the database was ahead of the monotonic one. */
  #ahead: number | undefined;
  readonly #passAt = new Map<string, number>();
  #underWay: Promise<void> = Promise.resolve();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: ChoresOptions) {
    this.#options = options;
  }

  #do(work: () => Promise<void>): void {
    this.#underWay = this.#underWay.then(async () => {
      if (!this.#ending.signal.aborted) await work().catch(() => {});
    });
  }

  /** A transaction has counted what it did in a queue. */
  counted(queue: string): void {
    // The first time after fewer: programs that end before that would leave it to others.
    const count = (this.#counts.get(queue) ?? Math.floor(Math.random() * COUNTS)) + 1;
    this.#counts.set(queue, count % COUNTS);
    if (count >= COUNTS) this.drawTogether(queue);
  }

  /** Many rows of counts were seen in a queue. */
  drawTogether(queue: string): void {
    const { runner, sql } = this.#options;
    this.#do(() => runner.read(async ({ client }) => void (await query(client, sql.drawTogether, [queue]))));
  }

  /** The clock of the database shows `now`. */
  seen(now: number): void {
    const monotonic = monotonicNow();
    if (this.#clock.isUnseen(monotonic)) this.#do(() => this.#compareWritten());
    else if (this.#clock.look(now, monotonic)) this.#do(() => this.#repair());
  }

  async #compareWritten(): Promise<void> {
    const { runner, sql } = this.#options;
    const [row] = await runner.read(({ client }) => query(client, sql.latestWritten));
    await runner.read(({ client }) => query(client, sql.forgetMarks));
    this.#clock.written((row?.["latest"] as number | null) ?? 0);
    if (this.#clock.look(row?.["now"] as number, monotonicNow())) await this.#repair();
  }

  /** Leases and delays that were written in what is now the future keep their remaining length. */
  async #repair(): Promise<void> {
    const { sql } = this.#options;
    try {
      for (const statement of [sql.pullBackLeases, sql.pullBackDelays]) {
        while ((await this.#run(statement)) > 0);
      }
      await this.#run(sql.resetClock);
      const rows = await this.#options.runner.read(({ client }) => query(client, sql.queues, [""]));
      this.#options.changed(rows.map((row) => row["queue"] as string));
    } catch (error) {
      this.#clock.distrust();
      throw error;
    }
  }

  async #run(statement: string): Promise<number> {
    const attempt = { lockMs: LOCK_MS, fsync: undefined, endsAt: () => 0 };
    return (await this.#options.runner.run(attempt, (transaction) => transaction.query(statement))).length;
  }

  /** A consumer has come, perhaps with finished jobs to be removed. */
  consumerCame(): void {
    const now = monotonicNow();
    for (const queue of this.#kept().keys()) {
      if (!this.#passAt.has(queue)) this.#passAt.set(queue, now + FIRST_PASS_MS);
    }
    this.#plan();
  }

  /** What is to be kept, by queue. Of two consumers that differ, the one that keeps less decides. */
  #kept(): Map<string, Retention> {
    const kept = new Map<string, Retention>();
    for (const { settings } of this.#options.consumers()) {
      const { queue, retention } = settings;
      if (retention === undefined) continue;
      const { ackedMs, failedMs } = kept.get(queue) ?? {};
      kept.set(queue, { ackedMs: less(ackedMs, retention.ackedMs), failedMs: less(failedMs, retention.failedMs) });
    }
    return kept;
  }

  #plan(): void {
    clearTimeout(this.#timer);
    const next = Math.min(...this.#passAt.values());
    if (!Number.isFinite(next)) return;
    this.#timer = setTimeout(() => this.#do(() => this.#passes()), Math.max(0, next - monotonicNow())).unref();
  }

  async #passes(): Promise<void> {
    const kept = this.#kept();
    for (const [queue, at] of [...this.#passAt]) {
      const retention = kept.get(queue);
      if (retention === undefined) this.#passAt.delete(queue);
      else if (at <= monotonicNow()) await this.#pass(queue, retention);
    }
    this.#plan();
  }

  async #pass(queue: string, retention: Retention): Promise<void> {
    const { runner, sql } = this.#options;
    const startedAt = monotonicNow();
    try {
      if (await this.#jumped()) {
        this.#passAt.set(queue, startedAt + JUMP_PAUSE_MS);
        return;
      }
      const changed = (): void => this.counted(queue);
      await retain({ runner, sql, queue, changed, signal: this.#ending.signal }, retention);
    } catch {
      // The next pass does it.
    }
    const now = monotonicNow();
    this.#passAt.set(queue, now + Math.max(PASS_INTERVAL_MS, PASS_INTERVALS * (now - startedAt)));
  }

  /** Whether the clock of the database was set forward: what seems to be old then may not be old at all. */
  async #jumped(): Promise<boolean> {
    const { runner, sql } = this.#options;
    const [row] = await runner.read(({ client }) => query(client, sql.lastId));
    const ahead = (row?.["now"] as number) - monotonicNow();
    const jumped = ahead - (this.#ahead ?? ahead) > JUMP_MS;
    this.#ahead = ahead;
    return jumped;
  }

  /** Resolves when nothing of that is under way any more. */
  end(): Promise<void> {
    this.#ending.abort();
    clearTimeout(this.#timer);
    return this.#underWay;
  }
}

function less(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}
