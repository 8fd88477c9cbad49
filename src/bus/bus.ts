import { Emitter } from "../emitter.ts";
import { QueueClosedError } from "../errors.ts";
import { unknownName, wrongType } from "../options.ts";
import { type Location, openStorage } from "../storage/location.ts";
import type { Storage } from "../storage/storage.ts";
import type { WorkerOptions } from "../worker-options.ts";
import { type BusRunOptions, type EventBusOptions, readBusOptions, readBusRunOptions } from "./bus-options.ts";
import { Consumption } from "./consumption.ts";
import { Dispatcher, type DispatchReceipt } from "./dispatcher.ts";
import { checkEvent, type Event } from "./event.ts";
import type { EventBusEvents } from "./event-work.ts";
import { Handlers } from "./handlers.ts";
import { busQueueName, queueName } from "./queue-name.ts";
import { Run } from "./run.ts";
import { openSubscription, type Subscription } from "./subscription.ts";
import { definitionsOf } from "./topology.ts";

/**
 * Durable publish and subscribe on the file of the queues. Each subscription is a queue of its own: it gets each event
 * that the topology routes to it, and the processes that run it share its events among themselves.
 */
export class EventBus<Context extends object = object> {
  readonly #name: string;
  readonly #storage: Storage;
  readonly #storages: Storage[];
  readonly #dispatcher: Dispatcher;
  readonly #subscriptions = new Map<
    string,
    { readonly consumption: Consumption; readonly facade: Subscription<Context> }
  >();
  readonly #events: Emitter<EventBusEvents>;
  readonly #runs = new Set<Run>();
  /** Set by the first step of closing: nothing more is run. */
  #closed: Promise<void> | undefined;
  /** Set by the last step: nothing more is dispatched. */
  #isOver = false;

  /**
   * `location` is a directory, as a path or a `file:` URL, which is created with its parents when it is first used; or a
   * PostgreSQL database, as a `postgres:` URL or by `postgres()` of `localqueue/postgres`.
   */
  constructor(location: string | URL | Location, options: EventBusOptions<Context>) {
    const { name, topology, leaseMs, maxRetries, fsync, requireSubscribers, retention, createContext } =
      readBusOptions(options);
    this.#name = name;
    this.#storage = openStorage(location, { queue: busQueueName(name), fsync, text: true });
    this.#storages = [this.#storage];
    this.#dispatcher = new Dispatcher({ bus: name, topology, maxRetries, requireSubscribers });
    this.#events = new Emitter({
      "event:acked": [],
      "event:retried": [],
      "event:failed": [],
      "lease:lost": [],
      error: [],
    });
    const definitions = new Map(definitionsOf(topology));
    for (const subscription of topology.subscriptions) {
      const queue = queueName(name, subscription);
      const storage = openStorage(location, { queue, fsync, text: true, retention });
      const handlers = new Handlers(subscription, topology, definitions);
      const consumption = new Consumption({
        subscription,
        queue,
        storage,
        leaseMs,
        handlers,
        dispatcher: this.#dispatcher,
        createContext,
        events: this.#events,
      });
      const facade = openSubscription<Context>({ consumption, storage, queue, leaseMs, maxRetries });
      this.#storages.push(storage);
      this.#subscriptions.set(subscription, { consumption, facade });
    }
  }

  /**
   * Stores an event for each of its subscriptions in one transaction, and resolves once that is committed. A
   * subscription that knows the event already, by its id or by its identity, is left as it is. Rejects with
   * `InvalidEventError`, `NoSubscribersError`, `DeduplicationConflictError`, `PayloadError` (too large), `StorageError`,
   * `QueueClosedError`.
   */
  async dispatch(event: Event): Promise<DispatchReceipt> {
    const [receipt] = await this.dispatchMany([checkEvent(event, "event")]);
    return receipt as DispatchReceipt;
  }

  /** Dispatches all events in one transaction, or none; the receipts are in the order of the events. */
  async dispatchMany(events: Iterable<Event>): Promise<DispatchReceipt[]> {
    if (this.#isOver) throw this.#closedError();
    const checked = Array.from(iterable(events), (event, index) => checkEvent(event, `events[${index}]`));
    return this.#dispatcher.dispatch(this.#storage, checked);
  }

  /** A subscription of the topology. Options hold for the subscription in this process, and are to be set before it runs. */
  subscription(name: string, options?: WorkerOptions): Subscription<Context> {
    const { consumption, facade } = this.#find(name);
    consumption.configure(options);
    return facade;
  }

  /**
   * Runs the handlers of all subscriptions that have some in this process, until the signal aborts, `close()` is called,
   * or all have been idle for `idleTimeoutMs`; resolves once all is settled, at once if there are no handlers. Faults
   * of the storage that may pass are waited out (`error` is emitted); rejects with the `StorageError` when it is lost for good.
   * Refuses a subscription without a handler for one of the types that are routed to it.
   */
  async run(options?: BusRunOptions): Promise<void> {
    const handled = Array.from(this.#subscriptions.values(), ({ consumption }) => consumption);
    await this.#run(
      handled.filter(({ handlers }) => handlers.any),
      options,
    );
  }

  /** As `run`, for one subscription, which must have a handler. */
  async runSubscription(name: string, options?: BusRunOptions): Promise<void> {
    const { consumption } = this.#find(name);
    if (!consumption.handlers.any) {
      throw new Error(
        `Subscription "${name}" has no handler here: add one with bus.subscription("${name}").handler(…)`,
      );
    }
    await this.#run([consumption], options);
  }

  /** Calls `listener` at each `event`; the function that is returned ends that. What a listener throws harms nobody. */
  on<Name extends keyof EventBusEvents>(event: Name, listener: (payload: EventBusEvents[Name]) => unknown): () => void {
    return this.#events.on(event, listener);
  }

  /**
   * Stops what runs gracefully (until then handlers may still dispatch), and commits what was accepted, or rejects it after
   * 500 ms if the database is locked. Idempotent. Not to be awaited inside a handler, which it waits for.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** The same as `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await Promise.all(Array.from(this.#runs, (run) => run.stop()));
    this.#isOver = true;
    await Promise.all(this.#storages.map((storage) => storage.close()));
  }

  async #run(consumptions: readonly Consumption[], options: BusRunOptions | undefined): Promise<void> {
    const { signal, idleTimeoutMs } = readBusRunOptions(options);
    if (this.#closed !== undefined) throw this.#closedError();
    for (const consumption of consumptions) consumption.assertReady();
    const run = new Run(consumptions, idleTimeoutMs);
    this.#runs.add(run);
    const stop = (): void => void run.stop();
    signal?.addEventListener("abort", stop);
    try {
      const serving = run.serve();
      if (signal?.aborted) stop();
      await serving;
    } finally {
      signal?.removeEventListener("abort", stop);
      this.#runs.delete(run);
    }
  }

  #find(name: string): { readonly consumption: Consumption; readonly facade: Subscription<Context> } {
    const found = this.#subscriptions.get(name);
    if (found === undefined) throw unknownName("subscription", String(name), [...this.#subscriptions.keys()]);
    return found;
  }

  #closedError(): QueueClosedError {
    return new QueueClosedError(`Event bus "${this.#name}" is closed`);
  }
}

function iterable(events: unknown): Iterable<unknown> {
  if (typeof events === "object" && events !== null && Symbol.iterator in events) return events as Iterable<unknown>;
  throw wrongType("events", "an array or another iterable of events", events);
}
