import { type Full, type OptionsReader, optional, optionsReader } from "../options.ts";
import { BUS_PREFIX } from "../queue-options.ts";
import { type Location, openStorage } from "../storage/location.ts";
import type { QueueStats } from "../storage/storage.ts";
import { namesIn, queueName } from "./queue-name.ts";
import { busName } from "./topology.ts";

/** Which subscriptions to list. */
export interface ListSubscriptionsOptions {
  /** Those of the event bus of this name. Default: of all. */
  readonly bus?: string | undefined;
}

/** A subscription, and how many deliveries it has in each state; `ready` includes those that wait for their time. */
export interface SubscriptionStats extends QueueStats {
  readonly bus: string;
  readonly subscription: string;
}

const readOptions: OptionsReader<Full<ListSubscriptionsOptions>> = optionsReader({ bus: optional(busName) });

/**
 * The subscriptions that have got an event so far, of all event buses in a directory, sorted by the names of the bus
 * and the subscription: for those who have no topology. Creates the database, as all that looks does, if there is none.
 * Rejects with `StorageError`.
 */
export async function listSubscriptions(
  location: string | URL | Location,
  options?: ListSubscriptionsOptions,
): Promise<SubscriptionStats[]> {
  const { bus } = readOptions(options);
  const storage = openStorage(location, { queue: BUS_PREFIX, fsync: undefined });
  try {
    const queues = await storage.queues(bus === undefined ? BUS_PREFIX : queueName(bus, ""));
    const found = queues.flatMap(({ queue, ...counts }) => {
      const names = namesIn(queue);
      return names === undefined ? [] : [{ ...names, ...counts }];
    });
    return found.sort((a, b) => compare(a.bus, b.bus) || compare(a.subscription, b.subscription));
  } finally {
    await storage.close();
  }
}

/** By code units. */
function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
