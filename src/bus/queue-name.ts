import { BUS_PREFIX } from "../queue-options.ts";

/** The logical queue of a subscription. Where the Python package keeps it, too. */
export function queueName(bus: string, subscription: string): string {
  return `${busQueueName(bus)}:${subscription}`;
}

/** The queue in whose name a bus dispatches. No row has it. */
export function busQueueName(bus: string): string {
  return BUS_PREFIX + bus;
}

/** The names in that of a queue; `undefined` if it is none of a subscription. */
export function namesIn(queue: string): { readonly bus: string; readonly subscription: string } | undefined {
  const [bus, subscription, ...more] = queue.startsWith(BUS_PREFIX) ? queue.slice(BUS_PREFIX.length).split(":") : [];
  if (bus === undefined || subscription === undefined || more.length > 0) return undefined;
  return { bus, subscription };
}
