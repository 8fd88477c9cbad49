import { AsyncLocalStorage } from "node:async_hooks";
import { unlessAborted } from "../abort.ts";
import * as channels from "../channels.ts";
import type { Ending } from "../consumer-loop.ts";
import { ACKED, type Assigned, DeliveryWork } from "../delivery-work.ts";
import type { Emitter } from "../emitter.ts";
import {
  DeduplicationConflictError,
  InvalidEventError,
  LeaseExpiredError,
  PayloadError,
  StorageError,
} from "../errors.ts";
import { type HandlerContext, type Result, TimeoutError } from "../handler-run.ts";
import { wrongType } from "../options.ts";
import type { FailureReason, JobState } from "../state.ts";
import type { Delivery, Envelope, Settlement } from "../storage/storage.ts";
import { describeThrown } from "../thrown.ts";
import { warn } from "../warning.ts";
import type { CheckedWorkerOptions } from "../worker-options.ts";
import type { ContextFactory } from "./bus-options.ts";
import type { Dispatcher } from "./dispatcher.ts";
import { EnvelopeError, readEnvelope, restore } from "./envelope.ts";
import { type Event, emitted, isEvent, ready } from "./event.ts";
import { DeliveryContext, Emissions, extend } from "./event-context.ts";
import type { AnyHandler, Handlers } from "./handlers.ts";
import { SchemaFault } from "./standard-schema.ts";

/** What a bus tells those who listen. */
export interface EventBusEvents {
  /** The event is done in this subscription. */
  "event:acked": { readonly event: Event; readonly subscription: string };
  /** The event will be delivered again, `delayMs` from now. */
  "event:retried": {
    readonly event: Event;
    readonly subscription: string;
    readonly error: unknown;
    readonly delayMs: number;
  };
  /** The delivery became a dead letter. */
  "event:failed": {
    readonly event: Event;
    readonly subscription: string;
    readonly error: unknown;
    readonly reason: FailureReason;
  };
  /** The lease ended before the delivery could be settled: the handler's result, and what it emitted, is dropped. */
  "lease:lost": { readonly event: Event; readonly subscription: string };
  /** A fault of the storage that is being waited out, a delivery that cannot be read, or that nobody here handles, … */
  error: { readonly error: unknown; readonly subscription: string };
}

/** An event that was delivered, and who handles it. */
export interface Received extends Assigned {
  readonly event: Event;
  readonly handler: AnyHandler;
  readonly emissions: Emissions;
  run: HandlerContext | undefined;
  /** Runs a function where the handler ran, for those who trace it. Set if somebody listened to puts. */
  inside: ReturnType<typeof AsyncLocalStorage.snapshot> | undefined;
  /** What was told of the events that the handler emitted. */
  readonly announced: channels.ObservedPut[];
}

export interface EventWorkOptions {
  readonly subscription: string;
  readonly queue: string;
  readonly settings: CheckedWorkerOptions;
  readonly handlers: Handlers;
  readonly dispatcher: Dispatcher;
  readonly createContext: ContextFactory<object> | undefined;
  readonly events: Emitter<EventBusEvents>;
}

/** How long a delivery that nobody here can handle is left to other processes, in milliseconds. */
const LEAVE_TO_OTHERS = { initialMs: 1_000, maxMs: 60_000 };

/** What a subscription does with its deliveries. */
export class EventWork extends DeliveryWork<Received> {
  readonly #options: EventWorkOptions;
  /** Deliveries of which no event could be made, and why. */
  readonly #unread = new WeakMap<Delivery, unknown>();
  #warned = false;

  constructor(options: EventWorkOptions) {
    super(options.queue, options.settings);
    this.#options = options;
  }

  override open(delivery: Delivery): Received | Promise<Received> {
    channels.claimed(this.queue, delivery);
    const envelope = readEnvelope(delivery.payload);
    const { handlers, subscription } = this.#options;
    const definition = handlers.definitionOf(envelope.type);
    const handler = handlers.of(envelope.type);
    if (handler === undefined) throw new Unhandled(envelope.type, subscription, definition !== undefined);
    const receive = (event: Event): Received => {
      return {
        delivery,
        event,
        handler,
        emissions: new Emissions(),
        run: undefined,
        inside: undefined,
        announced: [],
        observed: undefined,
      };
    };
    const event = restore(envelope, definition);
    return event instanceof Promise ? event.then(receive) : receive(event);
  }

  override unreadable(delivery: Delivery, error: unknown): Settlement {
    this.#unread.set(delivery, error);
    const lastError = describeThrown(error);
    if (error instanceof Unhandled) {
      const exhaustedReason = error.isKnown ? "no_handler" : "unknown_event_type";
      return { event: "release", backoff: { ...LEAVE_TO_OTHERS, lastError, exhaustedReason } };
    }
    if (error instanceof SchemaFault) return this.policy.threw(delivery.attempt, error.cause);
    if (!(error instanceof EnvelopeError)) return this.policy.threw(delivery.attempt, error);
    return { event: "fail", lastError, reason: error.reason, category: undefined };
  }

  override settled(delivery: Delivery, settlement: Settlement, state: JobState): void {
    super.settled(delivery, settlement, state);
    const reason = state === "failed" ? channels.reasonOf(settlement) : undefined;
    if (this.#unread.has(delivery)) this.report(this.#unreadNow(delivery, reason));
    if (reason !== undefined) this.#warnIfUnheard(delivery.id, reason);
  }

  /** What to tell of a delivery of which no event could be made; with a reason if it is a dead letter now. */
  #unreadNow(delivery: Delivery, reason: FailureReason | undefined): unknown {
    const cause = this.#unread.get(delivery);
    if (reason === undefined) return cause;
    const what = `Delivery ${delivery.id} of subscription "${this.#options.subscription}" became a dead letter (${reason})`;
    return new InvalidEventError(`${what}. ${describeThrown(cause)}`, { cause });
  }

  protected override call(received: Received, run: HandlerContext): unknown {
    const { event, handler, delivery, emissions } = received;
    const { createContext, subscription } = this.#options;
    const context = new DeliveryContext(run, emissions, subscription, event, delivery);
    received.run = run;
    if (channels.arePutsObserved()) received.inside = AsyncLocalStorage.snapshot();
    if (createContext === undefined) return handler(event, context);
    return Promise.resolve(createContext(context, event)).then((made) => {
      // Whoever waited for it may have given up.
      context.signal.throwIfAborted();
      return handler(event, extend(context, made));
    });
  }

  protected override async returned(received: Received, value: unknown): Promise<Ending | undefined> {
    const returned = eventsIn(value);
    if (returned === undefined) return failed(unsupported(value), undefined);
    const events = [...received.emissions.end(), ...returned];
    if (events.length === 0) return ACKED;
    try {
      const emit = await this.#emissions(received, events);
      return { settlement: { event: "ack", emit }, error: undefined };
    } catch (error) {
      if (error instanceof Interruption) return this.endingOf(received, error.result);
      if (error instanceof SchemaFault) return this.endingOf(received, { kind: "threw", error: error.cause });
      return failed(error, error instanceof InvalidEventError ? "invalid_event" : undefined);
    }
  }

  override async conclude(received: Received, result: Result): Promise<Ending | undefined> {
    received.emissions.end();
    return super.conclude(received, result);
  }

  async #emissions(received: Received, events: readonly Event[]): Promise<Envelope[]> {
    const envelopes: Envelope[] = [];
    for (const event of events) {
      await this.#validated(received, event);
      const { envelope } = await this.#options.dispatcher.address(emitted(event, received.event));
      if (envelope === undefined) continue;
      const put = received.inside?.(() => this.#options.dispatcher.announce(envelope));
      if (put !== undefined) received.announced.push(put);
      envelopes.push(put === undefined ? envelope : { ...envelope, context: channels.contextOf(put) });
    }
    return envelopes;
  }

  /** An asynchronous schema takes its time from the handler's: it may never answer. */
  async #validated({ run }: Received, event: Event): Promise<void> {
    const validation = ready(event);
    if (validation === undefined || run === undefined) return;
    try {
      await unlessAborted(validation, run.signal);
    } catch (error) {
      throw run.signal.aborted ? new Interruption(run.signal.reason) : error;
    }
  }

  /** The emissions conflict with what is stored, or are too large: no retry can help. */
  override refused(_: Received, error: unknown): Ending | undefined {
    if (error instanceof PayloadError) return failed(error, undefined);
    return error instanceof DeduplicationConflictError ? failed(error, "deduplication_conflict") : undefined;
  }

  override dropped({ announced }: Received): void {
    const error = new StorageError("BUSY", "The acknowledgement could not be recorded", { outcome: "unknown" });
    for (const put of announced) channels.putEnded(put, undefined, error);
  }

  override concluded(received: Received, ending: Ending, state: JobState): void {
    for (const put of received.announced) channels.putEnded(put, undefined, ending.error);
    super.concluded(received, ending, state);
  }

  override leaseLost(received: Received): void {
    const error = new LeaseExpiredError("The lease of the event whose handler emitted this one was lost");
    for (const put of received.announced) channels.putEnded(put, undefined, error);
    super.leaseLost(received);
  }

  override leaseRenewed(): void {}

  protected override acked({ event }: Received): void {
    this.#options.events.emit("event:acked", { event, subscription: this.#options.subscription });
  }

  protected override retried({ event }: Received, error: unknown, delayMs: number): void {
    this.#options.events.emit("event:retried", { event, subscription: this.#options.subscription, error, delayMs });
  }

  protected override failed({ event }: Received, error: unknown, reason: FailureReason): void {
    this.#options.events.emit("event:failed", { event, subscription: this.#options.subscription, error, reason });
  }

  protected override lost({ event }: Received): void {
    this.#options.events.emit("lease:lost", { event, subscription: this.#options.subscription });
  }

  protected override report(error: unknown): void {
    this.#options.events.emit("error", { error, subscription: this.#options.subscription });
  }

  #warnIfUnheard(id: number, reason: FailureReason): void {
    const { events, subscription } = this.#options;
    if (this.#warned || events.has("event:failed") || events.has("error")) return;
    this.#warned = true;
    const what = `Delivery ${id} of subscription "${subscription}" became a dead letter (${reason})`;
    warn("LOCALQUEUE_UNHEARD_DEAD_LETTER", `${what}, and nobody listens for "event:failed" or "error" of its bus`);
  }
}

/** A delivery of a type that nobody here handles. */
class Unhandled extends InvalidEventError {
  /** Whether the type as such is known here. */
  readonly isKnown: boolean;

  constructor(type: string, subscription: string, isKnown: boolean) {
    const what = isKnown ? "for which it has no handler here" : "which is not known here";
    super(
      `Subscription "${subscription}" got an event of the type "${type}", ${what}. Other processes may take it: deploy one that handles it, or add a handler`,
    );
    this.isKnown = isKnown;
  }
}

/** The run of the handler ended while its emissions were being checked. */
class Interruption extends Error {
  readonly result: Result;

  constructor(reason: unknown) {
    super("The run of the handler has ended", { cause: reason });
    if (reason instanceof TimeoutError) this.result = { kind: "timed out", error: reason };
    else this.result = { kind: reason instanceof LeaseExpiredError ? "lease lost" : "interrupted" };
  }
}

function failed(error: unknown, category: string | undefined): Ending {
  const lastError = describeThrown(error);
  return { settlement: { event: "fail", lastError, reason: "permanent_handler_error", category }, error };
}

/** The events that a handler returned; `undefined` = it returned something else. */
function eventsIn(value: unknown): readonly Event[] | undefined {
  if (value === undefined || value === null) return [];
  if (isEvent(value)) return [value];
  return Array.isArray(value) && value.every(isEvent) ? value : undefined;
}

function unsupported(value: unknown): TypeError {
  const wrong = Array.isArray(value) ? value.findIndex((item) => !isEvent(item)) : -1;
  if (wrong < 0) return wrongType("what the handler returned", "nothing, an event, or an array of events", value);
  return wrongType(`item ${wrong} of what the handler returned`, "an event", (value as unknown[])[wrong]);
}
