import { defineEvent, type EventDefinition } from "../../../dist/bus/index.js";

/** What the handlers of Python do with a task: the first of these that there is. */
export interface Does {
  /** The last attempt at which it does something at all. */
  readonly until?: number;
  readonly wait?: number;
  readonly kill?: true;
  readonly raise?: string;
  readonly permanent?: string;
  readonly reject?: string;
  readonly category?: string;
  readonly retry?: string;
  readonly after?: number;
  readonly emit?: readonly [type: string, data: object];
  readonly return?: unknown;
}

/** Events that both languages know: test/interop/python/events.py has the same. */
export const Task: EventDefinition<{ n: number; does?: Does | null }> = defineEvent("task");

export const OrderPaid: EventDefinition<{ order_id: string; cents: number }> = defineEvent("order.paid", undefined, {
  identity: ["order_id"],
});

export const Anything: EventDefinition<Record<string, unknown>> = defineEvent("anything", undefined, {
  version: 2,
  identity: ["tenant", "key"],
});

export const Measured: EventDefinition<{ name: string; count: number; value: number }> = defineEvent(
  "measured",
  undefined,
  { identity: ["name"] },
);

export const Reading: EventDefinition<{ value: number }> = defineEvent("reading");

/** Of a kind that only this language knows. */
export const Unheard: EventDefinition<{ n: number }> = defineEvent("only.node");

/** Python's `Invoice`: what it has as decimals, dates and UUIDs are texts here. */
export const Invoice: EventDefinition<{
  number: string;
  total: string;
  due: string;
  sent_at: string;
  within: string;
  customer: string;
}> = defineEvent("invoice", undefined, { identity: ["number"] });
