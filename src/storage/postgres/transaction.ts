import { StorageError } from "../../errors.ts";
import type { Session } from "./connect.ts";
import { isConnectionFailure } from "./failures.ts";
import { commit, HUNG_MS, query, type Row, uploadMs } from "./rows.ts";
import type { Statements } from "./statements.ts";

/**
 * A connection that hangs in an open transaction, because this thread was blocked meanwhile, is ended by the server: what
 * it has claimed is then free for others.
 */
const IDLE_MS = 5000;
/** How long a statement waits for a lock before those whose time is up are told. */
const LOCK_SLICE_MS = 250;

export interface TransactionOptions {
  readonly lockMs: number;
  /** `undefined`: as the server has it. */
  readonly fsync: boolean | undefined;
  readonly hungMs?: number;
}

/** What is needed to find the transaction again. */
export interface Marking {
  readonly mark: Mark;
  readonly sql: { readonly mark: string };
}

/**
 * By what a transaction can be found again, whatever happens to the connection and the server: whoever changes something
 * leaves its number in a row that no other transaction under way has. There are a few of these.
 */
export interface Mark {
  readonly id: string;
  number: number;
}

/** The COMMIT was sent, and its answer was lost with the connection. */
export class CommitLost extends Error {
  /** Whether it has changed anything. */
  readonly marked: boolean;
  /** What the work gave, which holds if it was committed. */
  readonly result: unknown;

  constructor(
    { marked, result }: { readonly marked: boolean; readonly result: unknown },
    options: { readonly cause: unknown },
  ) {
    super("the connection was lost at COMMIT", options);
    this.marked = marked;
    this.result = result;
  }
}

/** What the work of a transaction throws by itself, to have it undone: nothing is wrong with the server. */
export class Verdict extends Error {}

/** Others changed what it was about, meanwhile: it is to be done anew. */
export class Crossed extends Verdict {}

/** A transaction under way: statements can be sent without waiting for the answers to those before. */
export class Transaction {
  readonly #session: Session;
  #hungMs: number;
  #sent = 0;
  #succeeded = 0;
  #failure: unknown;
  #last: Promise<unknown> = Promise.resolve();

  constructor(session: Session, hungMs: number) {
    this.#session = session;
    this.#hungMs = hungMs;
  }

  /** How many statements were sent. */
  get sent(): number {
    return this.#sent;
  }

  /** How many statements succeeded. */
  get succeeded(): number {
    return this.#succeeded;
  }

  /** Why the first of the statements failed; those after it fail because of that. */
  get failure(): unknown {
    return this.#failure;
  }

  query(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    this.#sent++;
    // What is sent behind something large waits for that, too.
    this.#hungMs += uploadMs(values);
    const { client } = this.#session;
    // A connection of the program's own pool takes one statement at a time.
    const rows = client.pipeline
      ? query(client, text, values, this.#hungMs)
      : this.#last.then(() => query(client, text, values, this.#hungMs));
    this.#last = rows;
    // Not everybody waits for what was sent behind a statement that fails.
    rows.then(
      () => this.#succeeded++,
      (error: unknown) => {
        this.#failure ??= error;
      },
    );
    return rows;
  }

  /** For a statement of which nobody waits for the answer; if it fails, so does the transaction. */
  send(text: string, values: readonly unknown[]): void {
    this.query(text, values).catch(() => {});
  }

  /** Leaves the mark if anything was changed; returns whether it did. */
  async mark({ mark, sql }: Marking): Promise<boolean> {
    return (await this.query(sql.mark, [mark.id, mark.number])).length > 0;
  }
}

/**
 * Does the work in one transaction: its statements and its mark go out at once, and COMMIT only when the mark is set, by
 * which it can be found out what became of a COMMIT whose answer was lost. Until then a lost connection means that nothing
 * happened. Without `marking`, nobody will ask.
 */
export async function transact<T>(
  session: Session,
  options: TransactionOptions,
  work: (transaction: Transaction) => Promise<T>,
  marking?: Marking,
): Promise<T> {
  const { hungMs = HUNG_MS } = options;
  const transaction = new Transaction(session, hungMs);
  const begun = transaction.query(beginning(options));
  let result: T;
  let marked = false;
  try {
    if (marking !== undefined) marking.mark.number++;
    const working = work(transaction);
    working.catch(() => {});
    const first = transaction.sent;
    const early = marking && transaction.mark(marking);
    early?.catch(() => {});
    await begun;
    result = await working;
    marked = (await early) ?? false;
    if (marking !== undefined && !marked && transaction.sent > first + 1) marked = await transaction.mark(marking);
  } catch (error) {
    await undo(session, transaction, begun);
    throw transaction.failure ?? error;
  }
  try {
    await commit(session.client, hungMs);
  } catch (error) {
    if (isConnectionFailure(error)) throw new CommitLost({ marked, result }, { cause: error });
    throw error;
  }
  return result;
}

function beginning({ lockMs, fsync }: TransactionOptions): string {
  const settings = [
    `lock_timeout = ${Math.max(1, Math.min(Math.ceil(lockMs), LOCK_SLICE_MS))}`,
    `idle_in_transaction_session_timeout = ${IDLE_MS}`,
    // The statements know the indexes that they need; statistics that lag behind must not talk the planner out of them.
    "enable_seqscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "jit = off",
    ...(fsync === undefined ? [] : [`synchronous_commit = ${fsync ? "on" : "off"}`]),
  ];
  return ["BEGIN ISOLATION LEVEL READ COMMITTED", ...settings.map((setting) => `SET LOCAL ${setting}`)].join("; ");
}

/** Leaves the connection as it was before. */
async function undo({ client }: Session, transaction: Transaction, begun: Promise<unknown>): Promise<void> {
  await query(client, "ROLLBACK").catch(() => {});
  const refused = await begun.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (refused === undefined || isConnectionFailure(refused) || transaction.succeeded === 0) return;
  // What was sent behind it was then not in a transaction.
  throw new StorageError("IO", "The server refused to begin a transaction. Look at its log before trying again.", {
    outcome: "unknown",
    cause: refused,
  });
}

/** Whether a transaction was committed. Waits until it is over: its mark is locked as long as it is under way. */
export async function wasCommitted(session: Session, { mark, sql }: { mark: Mark; sql: Statements }): Promise<boolean> {
  const options = { lockMs: HUNG_MS, fsync: undefined };
  return await transact(session, options, async (transaction) => {
    // In case that it was the first of its mark.
    await transaction.query(sql.unmarked, [mark.id]);
    const [row] = await transaction.query(sql.lockMark, [mark.id]);
    return row?.["number"] === mark.number;
  });
}
