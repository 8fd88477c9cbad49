import { StorageError } from "../../errors.ts";
import type { Session } from "./connect.ts";
import { isConnectionFailure } from "./failures.ts";
import { query, type Row } from "./rows.ts";

/**
 * A connection that hangs in an open transaction, because this thread was blocked meanwhile, is ended by the server: what
 * it has claimed is then free for others.
 */
const IDLE_MS = 5000;
/** How long a statement waits for a lock before those whose time is up are told. */
const LOCK_SLICE_MS = 250;

const TIMELINE = "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)";

export interface TransactionOptions {
  readonly lockMs: number;
  /** `undefined`: as the server has it. */
  readonly fsync: boolean | undefined;
}

/** By what a transaction can be found again. A server that takes over may give the same number to another one. */
export interface TransactionNumber {
  readonly number: string;
  readonly timeline: string;
}

/** The COMMIT was sent, and its answer was lost with the connection. */
export class CommitLost extends Error {
  /** `undefined`: it has changed nothing. */
  readonly number: TransactionNumber | undefined;
  /** What the work gave, which holds if it was committed. */
  readonly result: unknown;

  constructor(
    { number, result }: { readonly number: TransactionNumber | undefined; readonly result: unknown },
    options: { readonly cause: unknown },
  ) {
    super("the connection was lost at COMMIT", options);
    this.number = number;
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
  #sent = 0;
  #failure: unknown;
  #last: Promise<unknown> = Promise.resolve();

  constructor(session: Session) {
    this.#session = session;
  }

  /** How many statements were sent. */
  get sent(): number {
    return this.#sent;
  }

  /** Why the first of the statements failed; those after it fail because of that. */
  get failure(): unknown {
    return this.#failure;
  }

  query(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    this.#sent++;
    const { client } = this.#session;
    // A connection of the program's own pool takes one statement at a time.
    const rows = client.pipeline ? query(client, text, values) : this.#last.then(() => query(client, text, values));
    this.#last = rows;
    // Not everybody waits for what was sent behind a statement that fails.
    rows.catch((error: unknown) => {
      this.#failure ??= error;
    });
    return rows;
  }

  /** Its number, if it has changed anything. */
  async number(): Promise<TransactionNumber | undefined> {
    const [row] = await this.query(`SELECT pg_current_xact_id_if_assigned()::text AS number, ${TIMELINE} AS timeline`);
    const { number, timeline } = row as { number: string | null; timeline: string };
    return number === null ? undefined : { number, timeline };
  }
}

/**
 * Does the work in one transaction: its statements and the question for the number go out at once, and COMMIT only when
 * the number is here, by which it can be found out what became of a COMMIT whose answer was lost. Until then a lost
 * connection means that nothing happened. `committing` is told when COMMIT is sent.
 */
export async function transact<T>(
  session: Session,
  options: TransactionOptions,
  work: (transaction: Transaction) => Promise<T>,
  committing: () => void = () => {},
): Promise<T> {
  const transaction = new Transaction(session);
  const begun = transaction.query(beginning(options));
  let result: T;
  let number: TransactionNumber | undefined;
  try {
    const working = work(transaction);
    working.catch(() => {});
    const first = transaction.sent;
    const early = transaction.number();
    early.catch(() => {});
    await begun;
    result = await working;
    number = (await early) ?? (transaction.sent > first + 1 ? await transaction.number() : undefined);
  } catch (error) {
    await undo(session, begun);
    throw transaction.failure ?? error;
  }
  committing();
  try {
    await session.client.query("COMMIT");
  } catch (error) {
    if (isConnectionFailure(error)) throw new CommitLost({ number, result }, { cause: error });
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
async function undo({ client }: Session, begun: Promise<unknown>): Promise<void> {
  const refused = await begun.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (refused !== undefined && !isConnectionFailure(refused)) {
    // What was sent behind it was then not in a transaction.
    throw new StorageError("IO", "The server refused to begin a transaction. Look at its log before trying again.", {
      outcome: "unknown",
      cause: refused,
    });
  }
  await client.query("ROLLBACK").catch(() => {});
}

/** What became of a transaction: it is done, it never happened, or nobody can say. Asked on another connection. */
export async function fateOf(
  session: Session,
  { number, timeline }: TransactionNumber,
): Promise<"done" | "undone" | "under way" | "unknown"> {
  const [here] = await query(session.client, `SELECT ${TIMELINE} AS timeline`);
  if (here?.["timeline"] !== timeline) return "unknown";
  const [row] = await query(session.client, "SELECT pg_xact_status($1::text::xid8) AS status", [number]);
  switch (row?.["status"]) {
    case "committed":
      return "done";
    case "aborted":
      return "undone";
    case "in progress":
      return "under way";
    default:
      return "unknown";
  }
}
