import type { HandlerContext } from "../handler-run.ts";
import { isPlainObject, wrongType } from "../options.ts";
import type { Delivery } from "../storage/storage.ts";
import { checkEvent, type Event } from "./event.ts";

/** What a handler may look at, and do, besides its event. */
export interface EventContext extends HandlerContext {
  /** The id of the event, the same in all subscriptions and all deliveries. */
  readonly eventId: string;
  /** 1 at the first delivery. */
  readonly attempt: number;
  /** The name of the subscription. */
  readonly subscription: string;
  /**
   * Dispatches an event together with the acknowledgement of this one: both are committed, or neither is. It becomes a
   * child of this event, unless it has a parent already. Throws once the handler has settled.
   */
  emit(event: Event): void;
}

/** What the handler of one delivery emits. */
export class Emissions {
  readonly #events: Event[] = [];
  #isOver = false;

  add(event: Event): void {
    if (this.#isOver) {
      throw new Error(
        "This delivery is over: its handler has settled, ran for too long or lost its lease. Nothing can be emitted with it any more",
      );
    }
    this.#events.push(checkEvent(event, "event"));
  }

  /** What was emitted; nothing can be added any more. */
  end(): readonly Event[] {
    this.#isOver = true;
    return this.#events;
  }
}

/** The context of one delivery. */
export class DeliveryContext implements EventContext {
  readonly eventId: string;
  readonly attempt: number;
  readonly subscription: string;
  /** A function of its own: handlers may take it out of the context. */
  readonly emit: (event: Event) => void;
  readonly #run: HandlerContext;

  constructor(run: HandlerContext, emissions: Emissions, subscription: string, event: Event, { attempt }: Delivery) {
    this.#run = run;
    this.subscription = subscription;
    this.eventId = event.id;
    this.attempt = attempt;
    this.emit = (emitted) => emissions.add(emitted);
  }

  get signal(): AbortSignal {
    return this.#run.signal;
  }
}

/** What every context has. */
const OWN: readonly string[] = [
  "signal",
  "attempt",
  "eventId",
  "subscription",
  "emit",
] satisfies (keyof EventContext)[];

/** Adds to a context what the program's own factory made: its own properties. */
export function extend(context: EventContext, made: unknown): EventContext {
  if (!isPlainObject(made)) throw wrongType("what `createContext` returned", "a plain object", made);
  for (const name of OWN) {
    if (!Object.hasOwn(made, name)) continue;
    throw new TypeError(`\`createContext\` must not return a property \`${name}\`: every context has one`);
  }
  return Object.assign(context, made);
}
