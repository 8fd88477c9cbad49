import { randomUUID } from "node:crypto";
import type { Delivery } from "../storage.ts";
import type { Row } from "./driver.ts";
import type { Statements } from "./statements.ts";

/** What claims may differ in that are served together. */
export interface Terms {
  readonly leaseMs: number;
  /** Deliveries allowed in all, instead of those of the jobs. */
  readonly budget: number | null;
  /** Payloads are wanted as text, where that loses nothing. */
  readonly text: boolean;
}

export function areSame(a: Terms, b: Terms): boolean {
  return a.leaseMs === b.leaseMs && a.budget === b.budget && a.text === b.text;
}

/** The sign for what is not UTF-8, and a byte order mark at the beginning, which a decoder would take off. */
const UNFAITHFUL = /\uFFFD|^\uFEFF/;

/** Claims the first ready job. */
export function dequeue(sql: Statements, queue: string, terms: Terms, now: number): Delivery | undefined {
  const receipt = randomUUID();
  const { leaseMs, budget, text } = terms;
  // Not `get`: it would leave the statement unfinished.
  const [row] = sql.claim.all({ queue, leaseMs, budget, now, receipt, text: text ? 1 : 0 });
  return row && toDelivery(sql, row, receipt, now + leaseMs);
}

/**
 * Claims the first ready jobs together, at most `limit`, and only up to the first one that is large or has used up its
 * budget. For four and more that is faster than a statement for each, and for many it takes half the time.
 */
export function dequeueSeveral(sql: Statements, queue: string, terms: Terms, limit: number, now: number): Delivery[] {
  const { leaseMs, budget, text } = terms;
  const found = sql.claimable.all({ queue, budget, text: text ? 1 : 0, limit });
  const end = found.findIndex((row) => row["payload"] === null || row["spent"] === 1);
  const rows = end < 0 ? found : found.slice(0, end);
  const [first, last] = [rows[0], rows.at(-1)];
  if (first === undefined || last === undefined) return [];
  const receipt = randomUUID();
  const range = { first: first["id"] as number, last: last["id"] as number };
  const { changes } = sql.claimRange.run({ queue, leaseMs, budget, now, receipt, ...range });
  // A trigger of somebody else's may leave rows out.
  if (changes !== rows.length) throw new Error("not all jobs were claimed");
  return rows.map((row) => toDelivery(sql, row, `${receipt}-${row["id"]}`, now + leaseMs));
}

function toDelivery(sql: Statements, row: Row, receipt: string, leaseUntil: number): Delivery {
  return {
    id: row["id"] as number,
    receipt,
    payload: faithful(sql, row),
    attempt: row["attempts"] as number,
    jobId: (row["job_id"] as string | null) ?? undefined,
    enqueuedAt: row["created_at"] as number,
    leaseUntil,
    context: (row["trace_context"] as string | null) ?? undefined,
  };
}

/** The payload of a row: bytes where text would not be the same, since something in it is not UTF-8. */
function faithful(sql: Statements, row: Row): Uint8Array | string {
  const payload = row["payload"] as Uint8Array | string;
  if (typeof payload !== "string" || !UNFAITHFUL.test(payload)) return payload;
  const [kept] = sql.payload.all({ id: row["id"] as number });
  return kept?.["payload"] as Uint8Array;
}
