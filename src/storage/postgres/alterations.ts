import { refusal } from "../refusals.ts";
import type { Outcome } from "./lane.ts";
import type { Order } from "./order.ts";
import { SLICE, type Statements } from "./statements.ts";
import type { Transaction } from "./transaction.ts";

/** One job by its id: a waiting one is deleted, a dead letter replayed or deleted. Or all leases that ran out are ended. */
export type AlterInput =
  | { readonly verb: "remove" | "replay" | "discard"; readonly id: number }
  | { readonly verb: "reclaim" };

/** Resolves to how many jobs were changed. */
export type AlterOrder = Order<AlterInput, number>;

export async function performAlterations(
  sql: Statements,
  transaction: Transaction,
  orders: readonly AlterOrder[],
): Promise<Outcome<number>> {
  const answers: (number | Error)[] = [];
  for (const order of orders) answers.push(await alter(sql, transaction, order));
  const queues = new Set(orders.map(({ origin }) => origin.queue));
  return { answers, stirred: queues, freed: queues };
}

async function alter(
  sql: Statements,
  transaction: Transaction,
  { input, origin }: AlterOrder,
): Promise<number | Error> {
  const { queue, maxPending } = origin;
  if (input.verb === "reclaim") return await reclaim(sql, transaction, queue);
  const one = [input.id, queue];
  if (input.verb === "remove") return (await transaction.query(sql.remove, one)).length;
  if ((await transaction.query(sql.isFailed, one)).length === 0) return refusal("missing", undefined) as Error;
  if (input.verb === "replay" && maxPending !== undefined) {
    if ((await loadOf(sql, transaction, queue)) >= maxPending) return refusal("full", undefined) as Error;
  }
  const changed = (await transaction.query(sql[input.verb], one)).length;
  // Somebody else was first.
  return input.verb === "replay" && changed === 0 ? (refusal("missing", undefined) as Error) : changed;
}

async function reclaim(sql: Statements, transaction: Transaction, queue: string): Promise<number> {
  let reclaimed = 0;
  for (let expired = SLICE; expired === SLICE; reclaimed += expired) {
    const [row] = await transaction.query(sql.stir, [queue, null, []]);
    expired = row?.["expired"] as number;
  }
  return reclaimed;
}

/** How many jobs a queue holds, while nobody else who has a limit adds any. */
export async function loadOf(sql: Statements, transaction: Transaction, queue: string): Promise<number> {
  const locking = [transaction.query(sql.lockJobs), transaction.query(sql.lockQueue, [queue])];
  const [row] = await transaction.query(sql.load, [queue]);
  await Promise.all(locking);
  return row?.["load"] as number;
}
