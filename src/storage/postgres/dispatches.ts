import type { JobState } from "../../state.ts";
import { conflictOf, refusal } from "../refusals.ts";
import type { Enqueued, Envelope, Identity, Lease } from "../storage.ts";
import { parametersOf, reviveDelayed } from "./endings.ts";
import { Culprit, type Outcome } from "./lane.ts";
import type { Order } from "./order.ts";
import { pack } from "./payloads.ts";
import type { Row } from "./rows.ts";
import type { Statements } from "./statements.ts";
import { Crossed, type Transaction } from "./transaction.ts";

/** Events for their queues; with a lease, they are what a handler emitted, and commit with its ack. */
export interface DispatchInput {
  readonly events: readonly Envelope[];
  readonly lease: Lease | undefined;
  /** See `HolderInput`. */
  readonly reviveMs?: number | undefined;
}

export type DispatchResult = { readonly dispatched: Enqueued[][]; readonly state: JobState };
export type DispatchOrder = Order<DispatchInput, DispatchResult>;

/** An event for one of its queues. */
interface Copy {
  readonly order: DispatchOrder;
  readonly event: Envelope;
  readonly queue: string;
}

/** Adds the events of all callers; throws a `Culprit` if one of them is not what its identity says it is. */
export async function performDispatches(
  sql: Statements,
  transaction: Transaction,
  orders: readonly DispatchOrder[],
): Promise<Outcome<DispatchResult>> {
  const lost = await acknowledge(sql, transaction, orders);
  const going = orders.filter((order) => !lost.has(order));
  const copies = going.flatMap((order) =>
    order.input.events.flatMap((event) => event.queues.map((queue) => ({ order, event, queue }))),
  );
  const enqueued = await fanOut(sql, transaction, copies);
  await link(sql, transaction, copies, enqueued);
  const next = enqueued.values();
  const answers = orders.map((order): DispatchResult | Error => {
    if (lost.has(order)) return refusal("lost", undefined) as Error;
    const dispatched = order.input.events.map(({ queues }) => queues.map(() => next.next().value as Enqueued));
    return { dispatched, state: "acked" };
  });
  const acked = going.filter(({ input }) => input.lease !== undefined).map(({ origin }) => origin.queue);
  return { answers, stirred: new Set(copies.map(({ queue }) => queue)), freed: new Set(acked) };
}

/** Ends the deliveries whose handlers emitted something; returns those that are lost. Of the same ones the first counts. */
async function acknowledge(
  sql: Statements,
  transaction: Transaction,
  orders: readonly DispatchOrder[],
): Promise<Set<DispatchOrder>> {
  const lost = new Set<DispatchOrder>();
  const holders = new Map<string, DispatchOrder>();
  for (const order of orders) {
    const { lease } = order.input;
    if (lease === undefined) continue;
    const key = `${lease.id} ${lease.receipt}`;
    if (holders.has(key)) lost.add(order);
    else holders.set(key, order);
  }
  if (holders.size === 0) return lost;
  reviveDelayed(sql, transaction, orders);
  const given = [...holders.values()];
  const inputs = given.map(({ input, origin }) => ({
    input: { lease: input.lease as Lease, move: { event: "ack" } as const },
    origin,
  }));
  const rows = await transaction.query(sql.end.ack, parametersOf(inputs));
  const held = new Set(rows.map((row) => given[(row["n"] as number) - 1]));
  for (const order of given) if (!held.has(order)) lost.add(order);
  return lost;
}

async function fanOut(sql: Statements, transaction: Transaction, copies: readonly Copy[]): Promise<Enqueued[]> {
  if (copies.length === 0) return [];
  const events = [...new Set(copies.map(({ event }) => event))];
  const { bytes, starts, lengths } = pack(events.map(({ payload }) => Buffer.from(payload)));
  const places = new Map(events.map((event, index) => [event, index]));
  const ofEvent = (numbers: readonly number[]): unknown[] =>
    copies.map(({ event }) => numbers[places.get(event) as number]);
  const added = await transaction.query(sql.dispatch, [
    bytes,
    copies.map(({ queue }) => queue),
    ofEvent(starts),
    ofEvent(lengths),
    copies.map(({ event }) => event.maxAttempts),
    copies.map(({ event }) => event.jobId),
    copies.map(({ event }) => event.identity?.key ?? null),
    copies.map(({ event }) => event.identity?.fingerprint ?? null),
    copies.map(({ event }) => event.context ?? null),
  ]);
  const fresh = new Map(
    added.map((row) => [keyOf(row["queue"], row["job_id"], row["dedup_key"]), row["id"] as number]),
  );
  const outcomes = copies.map(({ event, queue }): Enqueued | undefined => {
    const key = keyOf(queue, event.jobId, event.identity?.key ?? null);
    const id = fresh.get(key);
    if (id === undefined) return undefined;
    // The first of several that are the same.
    fresh.delete(key);
    return { id, inserted: true };
  });
  return await withKnown(sql, transaction, copies, outcomes);
}

/** The copies that are there already, which then are the same events. */
async function withKnown(
  sql: Statements,
  transaction: Transaction,
  copies: readonly Copy[],
  outcomes: readonly (Enqueued | undefined)[],
): Promise<Enqueued[]> {
  const rest = copies.filter((_, index) => outcomes[index] === undefined);
  if (rest.length === 0) return outcomes as Enqueued[];
  const rows = await transaction.query(sql.knownEvents, [
    rest.map(({ queue }) => queue),
    rest.map(({ event }) => event.jobId),
    rest.map(({ event }) => event.identity?.key ?? null),
  ]);
  const byId = new Map(rows.map((row) => [`${row["queue"]}\0${row["job_id"]}`, row]));
  const byKey = new Map(rows.map((row) => [`${row["queue"]}\0${row["dedup_key"]}`, row]));
  return copies.map((copy, index) => {
    const outcome = outcomes[index];
    if (outcome !== undefined) return outcome;
    const { event, queue } = copy;
    const there = byId.get(`${queue}\0${event.jobId}`);
    const same = event.identity && byKey.get(`${queue}\0${event.identity.key}`);
    return { id: knownId(copy, there, same), inserted: false };
  });
}

function knownId({ order, event, queue }: Copy, byId: Row | undefined, byKey: Row | undefined): number {
  if (byId === undefined && byKey === undefined) throw new Crossed();
  const differ = byId !== undefined && byKey !== undefined && byId["id"] !== byKey["id"];
  if (differ || !matches(byId, event.identity) || !matches(byKey, event.identity)) {
    throw new Culprit(order, conflictOf({ jobId: event.jobId, queue }));
  }
  return (byId ?? byKey)?.["id"] as number;
}

function matches(row: Row | undefined, identity: Identity | undefined): boolean {
  if (row === undefined || identity === undefined) return true;
  return row["dedup_key"] === identity.key && row["dedup_fingerprint"] === identity.fingerprint;
}

function keyOf(queue: unknown, jobId: unknown, key: unknown): string {
  return `${queue}\0${jobId}\0${key}`;
}

/** Links what handlers emitted, new or not, to their jobs, and to the executions that these belong to. */
async function link(
  sql: Statements,
  transaction: Transaction,
  copies: readonly Copy[],
  enqueued: readonly Enqueued[],
): Promise<void> {
  const links = copies.flatMap(({ order: { input } }, index) =>
    input.lease === undefined ? [] : [[input.lease.id, (enqueued[index] as Enqueued).id] as const],
  );
  if (links.length === 0) return;
  const ends = [links.map(([parent]) => parent), links.map(([, child]) => child)];
  await Promise.all([transaction.query(sql.link, ends), transaction.query(sql.track, ends)]);
}
