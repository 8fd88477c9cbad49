import * as channels from "../channels.ts";
import { NoSubscribersError } from "../errors.ts";
import type { Enqueued, Envelope, Storage } from "../storage/storage.ts";
import { writeEnvelope } from "./envelope.ts";
import { type Event, identityOf, ready } from "./event.ts";
import { busQueueName, queueName } from "./queue-name.ts";
import type { BusTopology } from "./topology.ts";

/** What became of a dispatched event: `subscriptions`, `messageIds` and `inserted` go together, place by place. */
export interface DispatchReceipt {
  readonly eventId: string;
  readonly eventType: string;
  /** Who gets the event, in the order of the names. */
  readonly subscriptions: readonly string[];
  /** The numbers of the deliveries in the database. */
  readonly messageIds: readonly number[];
  /** `false` where the event was known already: nothing was changed there. */
  readonly inserted: readonly boolean[];
}

export interface DispatcherOptions {
  /** The name of the bus. */
  readonly bus: string;
  readonly topology: BusTopology;
  readonly maxRetries: number;
  readonly requireSubscribers: boolean;
}

/** An event on its way to the storage; `envelope` is absent if no subscription gets it. */
export interface Addressed {
  readonly event: Event;
  readonly subscriptions: readonly string[];
  readonly envelope: Envelope | undefined;
}

/** From events to rows: who gets an event, and what is stored of it. */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  /** The queues of a list of subscriptions: one array for each, so that a message to the engine contains it once. */
  readonly #queues = new WeakMap<readonly string[], readonly string[]>();

  constructor(options: DispatcherOptions) {
    this.#options = options;
  }

  /** Rejects with `InvalidEventError` or `NoSubscribersError`. */
  async address(event: Event): Promise<Addressed> {
    const { topology, maxRetries, requireSubscribers } = this.#options;
    const validation = ready(event);
    if (validation !== undefined) await validation;
    const subscriptions = topology.subscriptionsFor(event.type);
    if (subscriptions.length > 0) {
      const [payload, identity] = [writeEnvelope(event), identityOf(event)];
      const queues = this.#queuesOf(subscriptions);
      const envelope = { payload, jobId: event.id, queues, identity, maxAttempts: maxRetries + 1 };
      return { event, subscriptions, envelope };
    }
    if (!requireSubscribers) return { event, subscriptions, envelope: undefined };
    throw new NoSubscribersError(
      `No subscription of the topology gets events of the type "${event.type}". Add it to one, or allow this with requireSubscribers: false`,
    );
  }

  /** Tells those who trace that an event is emitted; `undefined`: nobody listens. */
  announce({ jobId }: Envelope): channels.ObservedPut | undefined {
    return channels.putBegins(busQueueName(this.#options.bus), jobId, 0);
  }

  /** All in one transaction, or none. */
  async dispatch(storage: Storage, events: readonly Event[]): Promise<DispatchReceipt[]> {
    const addressed = await Promise.all(events.map((event) => this.address(event)));
    const envelopes = addressed.flatMap(({ envelope = [] }) => envelope);
    const stored =
      envelopes.length === 0 ? [] : await channels.dispatch(storage, busQueueName(this.#options.bus), envelopes);
    let next = 0;
    return addressed.map(({ event, subscriptions, envelope }) =>
      receipt(event, subscriptions, envelope === undefined ? [] : (stored[next++] ?? [])),
    );
  }

  #queuesOf(subscriptions: readonly string[]): readonly string[] {
    let queues = this.#queues.get(subscriptions);
    if (queues === undefined) {
      queues = subscriptions.map((subscription) => queueName(this.#options.bus, subscription));
      this.#queues.set(subscriptions, queues);
    }
    return queues;
  }
}

function receipt(event: Event, subscriptions: readonly string[], rows: readonly Enqueued[]): DispatchReceipt {
  return Object.freeze({
    eventId: event.id,
    eventType: event.type,
    subscriptions,
    messageIds: rows.map(({ id }) => id),
    inserted: rows.map(({ inserted }) => inserted),
  });
}
