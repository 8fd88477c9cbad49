import { randomUUID } from "node:crypto";
import { StorageError } from "../../errors.ts";
import { monotonicNow, setTimeout } from "../../timers.ts";
import { describeTarget, type PostgresTarget } from "../postgres-target.ts";
import { assertUsable, type Session } from "./connect.ts";
import { isConnectionFailure, sqlState, toStorageError } from "./failures.ts";
import { query } from "./rows.ts";
import { migrate } from "./schema.ts";
import { Sessions } from "./sessions.ts";
import { type Statements, statementsOf } from "./statements.ts";
import {
  CommitLost,
  Crossed,
  type Mark,
  type Transaction,
  type TransactionOptions,
  transact,
  Verdict,
  wasCommitted,
} from "./transaction.ts";

/** However little time is left: so long we try to find out what became of a COMMIT. */
const LEAST_LOOKING_MS = 1000;
const BACKOFF_MS = { first: 50, longest: 1000 };

/**
 * Why an attempt failed: a lock could not be had; transactions got in each other's way; the server cannot be reached, or
 * cannot write for the time being; or something that would not be better the next time.
 */
export type Trouble = "locked" | "crossed" | "gone" | "lasting";

/** An attempt under way. */
export interface Attempt extends TransactionOptions {
  /** When whoever waits for it gives up, by the monotonic clock. */
  readonly endsAt: () => number;
}

/** The COMMIT never happened. */
class Undone extends Error {}

/** Opens the database, and runs transactions on it: one attempt each. */
export class Runner {
  readonly place: string;
  readonly #target: PostgresTarget;
  readonly #sessions: Sessions;
  readonly #sql: Statements;
  /** Those that no transaction has just now. */
  readonly #marks: Mark[] = [];
  #opening: Promise<void> | undefined;
  /** Whether the database could be used before: then it is waited for, should it be gone. */
  #opened = false;

  constructor(target: PostgresTarget) {
    this.#target = target;
    this.place = describeTarget(target);
    this.#sessions = new Sessions(target);
    this.#sql = statementsOf(target.schema);
  }

  /** Runs the work in a transaction and commits it; throws what `troubleOf` tells apart. */
  async run<T>(attempt: Attempt, work: (transaction: Transaction) => Promise<T>): Promise<T> {
    await this.#open();
    const mark = this.#marks.pop() ?? { id: randomUUID(), number: 0 };
    const marking = { mark, sql: this.#sql };
    try {
      const result = await this.#use((session) => transact(session, attempt, work, marking));
      this.#marks.push(mark);
      return result;
    } catch (error) {
      if (error instanceof CommitLost) {
        await this.#lookUp(error, mark, attempt.endsAt);
        return error.result as T;
      }
      // The server may keep a transaction for a while whose connection is lost, and with it the row of its mark.
      if (troubleOf(error) !== "gone") this.#marks.push(mark);
      if (isAboutIds(error)) await this.#advanceIds();
      throw error;
    }
  }

  /** Reads without a transaction around it. */
  async read<T>(work: (session: Session) => Promise<T>): Promise<T> {
    await this.#open();
    return await this.#use(work);
  }

  #use<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.#sessions.use(async (session, spoil) => {
      try {
        return await work(session);
      } catch (error) {
        // A server that only reads may be the former primary: the next connection may lead to the new one.
        if (isSpoilt(error)) spoil();
        throw error;
      }
    });
  }

  #open(): Promise<void> {
    this.#opening ??= this.#prepare().catch((error: unknown) => {
      this.#opening = undefined;
      throw toStorageError(error, this.place);
    });
    return this.#opening;
  }

  async #prepare(): Promise<void> {
    await this.#use(async (session) => {
      await assertUsable(session, this.#target);
      await migrate(session.client, this.#target);
    });
    this.#opened = true;
  }

  /** Whether it is worth trying again. */
  isTransient(trouble: Trouble): boolean {
    return trouble === "locked" || trouble === "crossed" || (trouble === "gone" && this.#opened);
  }

  /** After a restore, or a move to another server, the ids that are given out next may be there already. */
  async #advanceIds(): Promise<void> {
    await this.#use(({ client }) => query(client, this.#sql.advanceIds)).catch(() => {});
  }

  /** Resolves if the transaction was committed; throws if it was not, or if that cannot be found out. */
  async #lookUp({ marked, cause }: CommitLost, mark: Mark, endsAt: () => number): Promise<void> {
    if (!marked) throw new Undone();
    const least = monotonicNow() + LEAST_LOOKING_MS;
    for (let pause = BACKOFF_MS.first; ; pause = longer(pause)) {
      try {
        if (await this.#use((session) => wasCommitted(session, { mark, sql: this.#sql }))) return;
        throw new Undone();
      } catch (error) {
        if (error instanceof Undone) throw error;
        if (monotonicNow() > Math.max(least, endsAt())) throw toStorageError(cause, this.place, "unknown");
      }
      await pauseFor(pause);
    }
  }

  end(): Promise<void> {
    return this.#sessions.end();
  }
}

export function troubleOf(error: unknown): Trouble {
  if (error instanceof Undone) return "gone";
  if (error instanceof Verdict) return error instanceof Crossed ? "crossed" : "lasting";
  if (error instanceof StorageError) {
    const mayPass = error.code === "CONNECTION" || error.code === "READ_ONLY";
    return mayPass && error.outcome === "failed" ? "gone" : "lasting";
  }
  if (isAboutIds(error)) return "crossed";
  const state = sqlState(error);
  if (state === "55P03") return "locked";
  if (state === "40001" || state === "40P01") return "crossed";
  if (state === "25006" || state === "53300") return "gone";
  if (error instanceof TypeError || error instanceof RangeError) return "lasting";
  return isConnectionFailure(error) ? "gone" : "lasting";
}

/** A row could not be added, and is not there either: its id may be another's. */
function isAboutIds(error: unknown): boolean {
  if (error instanceof Crossed) return true;
  return sqlState(error) === "23505" && (error as { constraint?: unknown }).constraint === "messages_pkey";
}

/** Whether nobody shall use the connection any more. */
function isSpoilt(error: unknown): boolean {
  if (error instanceof CommitLost || (error instanceof StorageError && error.outcome === "unknown")) return true;
  // Somebody left it in a transaction that failed.
  if (sqlState(error) === "25P02") return true;
  return troubleOf(error) === "gone" && !(error instanceof Undone);
}

/** The next pause of several. */
export function longer(pause: number): number {
  return Math.min(pause * 2, BACKOFF_MS.longest);
}

export function firstPause(): number {
  return BACKOFF_MS.first;
}

export function pauseFor(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
