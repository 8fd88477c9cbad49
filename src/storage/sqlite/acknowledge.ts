import type { Lease } from "../storage.ts";
import { ACK_ROWS, type Statements } from "./statements.ts";

const IDS = Array.from({ length: ACK_ROWS }, (_, i) => `id${i}`);
const RECEIPTS = Array.from({ length: ACK_ROWS }, (_, i) => `receipt${i}`);

/** Acknowledges deliveries of a queue, many with one statement. Throws if a lease is lost, since none tells which. */
export function acknowledgeSeveral(sql: Statements, queue: string, leases: readonly Lease[], now: number): void {
  for (let from = 0; from < leases.length; ) {
    const next = leases.slice(from, from + ACK_ROWS);
    from += next.length;
    if (next.length === ACK_ROWS) expectAll(together(sql, queue, next, now), ACK_ROWS);
    else for (const { id, receipt } of next) expectAll(sql.ack.run({ id, queue, receipt, now }).changes, 1);
  }
}

function together(sql: Statements, queue: string, leases: readonly Lease[], now: number): number {
  const parameters: Record<string, number | string> = { queue, now };
  for (let i = 0; i < leases.length; i++) {
    const { id, receipt } = leases[i] as Lease;
    parameters[IDS[i] as string] = id;
    parameters[RECEIPTS[i] as string] = receipt;
  }
  return sql.ackRows.run(parameters).changes;
}

function expectAll(changes: number, leases: number): void {
  if (changes !== leases) throw new Error("not all deliveries were acknowledged");
}
