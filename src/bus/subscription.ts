import { type QueueDiagnostics, queueDiagnostics } from "../diagnostics.ts";
import { type ListFailedOptions, readListFailed } from "../look-options.ts";
import { functionOf, wrongType } from "../options.ts";
import { type FailedFilter, type PurgeOptions, readFailedSelection, readPurgeOptions } from "../purge-options.ts";
import { jsonSerializer } from "../serializer.ts";
import type { QueueStats, Storage } from "../storage/storage.ts";
import type { Consumption } from "./consumption.ts";
import { type AnyEventDefinition, type EventDefinition, isDefinition } from "./definition.ts";
import { type FailedDelivery, failedDelivery } from "./failed-delivery.ts";
import type { AnyHandler, EventHandler } from "./handlers.ts";

export interface SubscriptionInternals {
  readonly consumption: Consumption;
  readonly storage: Storage;
  readonly queue: string;
  readonly leaseMs: number;
  readonly maxRetries: number;
}

/** For the bus alone: users have a subscription from `bus.subscription(name)`. */
export let openSubscription: <Context extends object>(internals: SubscriptionInternals) => Subscription<Context>;

/** One subscription of a bus, in this process: its handlers, its dead letters, how it is doing. */
export class Subscription<Context extends object = object> {
  static {
    openSubscription = (internals) => new Subscription(internals);
  }
  readonly name: string;
  readonly #internals: SubscriptionInternals;

  private constructor(internals: SubscriptionInternals) {
    this.name = internals.consumption.subscription;
    this.#internals = internals;
  }

  /**
   * Handles the events of a definition, of a type by its name, or with `"*"` all that no other handler of the subscription
   * handles. Returns the subscription. Throws when there is such a handler already, when the topology does not route
   * such events here, and once the subscription has been run.
   */
  handler<Data>(pattern: EventDefinition<never, Data>, handler: EventHandler<Data, Context>): this;
  handler(pattern: string, handler: EventHandler<unknown, Context>): this;
  handler(pattern: AnyEventDefinition | string, handler: EventHandler<never, Context>): this {
    const { consumption } = this.#internals;
    if (typeof pattern !== "string" && !isDefinition(pattern)) {
      throw wrongType("pattern", 'an event definition, the name of a type, or "*"', pattern);
    }
    const checked = functionOf<AnyHandler>()(handler, "handler");
    consumption.assertOpen("its handlers");
    consumption.handlers.add(pattern, checked);
    return this;
  }

  /**
   * Dead letters in the order of their ids, up to `limit` (default 100). One that cannot be read, or whose type is not
   * known here, is listed with its bytes and the reason.
   */
  async listFailed(options?: ListFailedOptions): Promise<FailedDelivery[]> {
    const { storage, consumption } = this.#internals;
    const records = await storage.listFailed(readListFailed(options));
    return Promise.all(records.map((record) => failedDelivery(this.name, consumption.handlers, record)));
  }

  /**
   * Delivers dead letters again, with a fresh budget: one by its id, or all of a filter (`{}` = all). Resolves to their
   * number. Rejects with `NotFoundError` when there is no dead letter with this id.
   */
  async retryFailed(which: number | { readonly id: number } | FailedFilter): Promise<number> {
    return this.#internals.storage.retryFailed(readFailedSelection(which));
  }

  /**
   * Deletes dead letters for good: one by its id, or all of a filter (`{}` = all). Resolves to their number. Rejects
   * with `NotFoundError` when there is no dead letter with this id. Those that belong to executions of the Python
   * package are kept.
   */
  async purgeFailed(which: number | { readonly id: number } | FailedFilter): Promise<number> {
    return this.#internals.storage.purgeFailed(readFailedSelection(which));
  }

  /** Deletes the deliveries that were acknowledged more than `olderThanMs` ago, as `purge` of a queue does. */
  async purge(options: PurgeOptions): Promise<number> {
    return this.#internals.storage.purge(readPurgeOptions(options));
  }

  /** How many deliveries are in each state; `ready` includes those that wait for their time. */
  async stats(): Promise<QueueStats> {
    return this.#internals.storage.stats();
  }

  /** How the subscription, its file and this program's side of it are doing, as `diagnostics` of a queue tells it. */
  async diagnostics(): Promise<QueueDiagnostics> {
    const { storage, queue: name, leaseMs, maxRetries } = this.#internals;
    return queueDiagnostics(await storage.diagnostics(), { name, serializer: jsonSerializer, leaseMs, maxRetries });
  }
}
