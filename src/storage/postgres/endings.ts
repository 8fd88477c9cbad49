import { type JobState, STATES } from "../../state.ts";
import { refusal } from "../refusals.ts";
import type { Lease, Settlement } from "../storage.ts";
import type { Outcome } from "./lane.ts";
import type { Order } from "./order.ts";
import type { Row } from "./rows.ts";
import type { Ending, Statements } from "./statements.ts";
import type { Transaction } from "./transaction.ts";

/** What a holder does with a delivery, but for what it emits. A lease that nobody has seen yet may be revived. */
export type HolderMove = Settlement | { readonly event: "extend" | "revive"; readonly ms: number };

export interface HolderInput {
  readonly lease: Lease;
  readonly move: HolderMove;
  /** Absent: nobody renews the lease, which must not have run out. */
  readonly reviveMs?: number | undefined;
}

/** What came of it: the state, or the new end of the lease. */
export interface HolderResult {
  readonly state: JobState;
  readonly leaseUntil: number;
  /** When a job is due that was given back. */
  readonly dueAt: number;
}

export type HolderOrder = Order<HolderInput, HolderResult>;

const AT_ONCE = { initialMs: 0, maxMs: 0, lastError: null, exhaustedReason: "retries_exhausted" } as const;

type Extension = "extend" | "revive";
type Kind = Ending | Extension;

/** Ends or extends deliveries, those of each kind by one statement. Of several with the same receipt the first counts. */
export async function performEndings(
  sql: Statements,
  transaction: Transaction,
  orders: readonly HolderOrder[],
): Promise<Outcome<HolderResult>> {
  const results: (HolderResult | undefined)[] = [];
  const seen = new Set<string>();
  const kinds = new Map<Kind, number[]>();
  for (const [index, { input }] of orders.entries()) {
    const { event } = input.move;
    const key = keyOf({ input });
    // Who extends first may settle after that, by a statement that comes later.
    if (!isExtension(event)) {
      if (seen.has(key)) continue;
      seen.add(key);
    }
    const same = kinds.get(event);
    if (same === undefined) kinds.set(event, [index]);
    else same.push(index);
  }
  reviveDelayed(sql, transaction, orders);
  const batch = { sql, transaction, orders, results };
  const extensions = (["extend", "revive"] as const).map((kind) => extend(batch, kind, kinds.get(kind) ?? []));
  const endings = [...kinds].map(([kind, indexes]) => (isExtension(kind) ? undefined : end(batch, kind, indexes)));
  await Promise.all([...extensions, ...endings]);
  const answers = orders.map((_, index) => results[index] ?? lost());
  const ended = orders.filter((_, index) => results[index] !== undefined).map(({ origin }) => origin.queue);
  return { answers, stirred: new Set(ended), freed: new Set(ended) };
}

function lost(): Error {
  return refusal("lost", undefined) as Error;
}

interface Delayable {
  readonly input: { readonly lease?: Lease | undefined; readonly reviveMs?: number | undefined };
  readonly origin: { readonly queue: string };
  readonly isDelayed: boolean;
}

/**
 * Leases that a consumer has renewed may have run out while what ends them waited for a lock or the server, and nobody
 * took them: as long as they are the consumer's they are renewed first.
 */
export function reviveDelayed(sql: Statements, transaction: Transaction, orders: readonly Delayable[]): void {
  const delayed = orders.flatMap(({ input: { lease, reviveMs }, origin, isDelayed }) =>
    lease === undefined || reviveMs === undefined || !isDelayed ? [] : [{ input: { lease }, origin, reviveMs }],
  );
  if (delayed.length === 0) return;
  transaction.send(sql.renew, [...leasesOf(delayed), delayed.map(({ reviveMs }) => Math.round(reviveMs))]);
}

interface Batch {
  readonly sql: Statements;
  readonly transaction: Transaction;
  readonly orders: readonly HolderOrder[];
  readonly results: (HolderResult | undefined)[];
}

async function end(
  { sql, transaction, orders, results }: Batch,
  kind: Ending,
  indexes: readonly number[],
): Promise<void> {
  const given = indexes.map((index) => orders[index] as HolderOrder);
  const rows = await transaction.query(sql.end[kind], parametersOf(given));
  for (const row of rows) results[indexOf(row, indexes)] = ended(row);
}

async function extend(
  { sql, transaction, orders, results }: Batch,
  kind: Extension,
  indexes: readonly number[],
): Promise<void> {
  if (indexes.length === 0) return;
  // Of several of the same delivery the last one is done, and all are told the same.
  const last = new Map(indexes.map((index) => [keyOf(orders[index] as HolderOrder), index]));
  const given = [...last.values()].map((index) => orders[index] as HolderOrder);
  const ms = given.map(({ input: { move } }) => ("ms" in move ? Math.round(move.ms) : 0));
  const rows = await transaction.query(kind === "extend" ? sql.extend : sql.renew, [...leasesOf(given), ms]);
  for (const row of rows) {
    const leaseUntil = row["lease_until"] as number | null;
    if (leaseUntil === null) continue;
    const key = keyOf(given[(row["n"] as number) - 1] as HolderOrder);
    for (const index of indexes) {
      if (keyOf(orders[index] as HolderOrder) !== key) continue;
      results[index] = { state: "processing", leaseUntil, dueAt: 0 };
    }
  }
}

function keyOf({ input: { lease } }: Pick<HolderOrder, "input">): string {
  return `${lease.id} ${lease.receipt}`;
}

function isExtension(event: HolderMove["event"]): event is Extension {
  return event === "extend" || event === "revive";
}

/** Which of the batch a row is about. */
function indexOf(row: Row, indexes: readonly number[]): number {
  return indexes[(row["n"] as number) - 1] as number;
}

function ended(row: Row): HolderResult {
  return { state: STATES[row["status"] as number] as JobState, leaseUntil: 0, dueAt: row["available_at"] as number };
}

function leasesOf(
  orders: readonly { readonly input: { readonly lease: Lease }; readonly origin: { readonly queue: string } }[],
): unknown[][] {
  return [
    orders.map(({ input }) => input.lease.id),
    orders.map(({ input }) => input.lease.receipt),
    orders.map(({ origin }) => origin.queue),
  ];
}

/** What the statements that end deliveries are given. */
export function parametersOf(
  orders: readonly { readonly input: HolderInput; readonly origin: { queue: string } }[],
): unknown[][] {
  const terms = orders.map(({ input: { move } }) => termsOf(move));
  return [
    ...leasesOf(orders),
    terms.map(({ ms }) => Math.round(ms)),
    terms.map(({ maxMs }) => Math.round(maxMs)),
    terms.map(({ error }) => error),
    terms.map(({ reason }) => reason),
    terms.map(({ category }) => category),
  ];
}

interface Terms {
  readonly ms: number;
  readonly maxMs: number;
  readonly error: string | null;
  readonly reason: string | null;
  readonly category: string | null;
}

function termsOf(move: HolderMove): Terms {
  const none = { ms: 0, maxMs: 0, error: null, reason: null, category: null };
  switch (move.event) {
    case "nack":
      return { ...none, ms: move.delayMs, error: move.lastError ?? null, reason: move.exhaustedReason };
    case "fail":
      return { ...none, error: move.lastError ?? null, reason: move.reason, category: move.category ?? null };
    case "release": {
      const { initialMs, maxMs, lastError, exhaustedReason } = move.backoff ?? AT_ONCE;
      return { ...none, ms: initialMs, maxMs, error: lastError, reason: exhaustedReason };
    }
    default:
      return none;
  }
}
