import type { HandlerContext } from "../handler-run.ts";
import { wrongType } from "../options.ts";
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

/** The context of one delivery. */
export class DeliveryContext implements EventContext {
  readonly eventId: string;
  readonly attempt: number;
  readonly subscription: string;
  readonly #run: HandlerContext;
  readonly #emitted: Event[] = [];
  #isOver = false;

  constructor(run: HandlerContext, subscription: string, event: Event, { attempt }: Delivery) {
    this.#run = run;
    this.subscription = subscription;
    this.eventId = event.id;
    this.attempt = attempt;
    // Handlers may take it out of the context.
    this.emit = this.emit.bind(this);
  }

  get signal(): AbortSignal {
    return this.#run.signal;
  }

  emit(event: Event): void {
    if (this.#isOver) {
      throw new Error(
        "The handler has settled, so nothing can be emitted with its acknowledgement: use bus.dispatch()",
      );
    }
    this.#emitted.push(checkEvent(event, "event"));
  }

  /** What was emitted; nothing can be added any more. */
  end(): readonly Event[] {
    this.#isOver = true;
    return this.#emitted;
  }

  /** Adds what the program's own factory made: its own properties. */
  extend(made: unknown): this {
    const prototype: unknown = typeof made === "object" && made !== null ? Object.getPrototypeOf(made) : undefined;
    if (
      made === null ||
      typeof made !== "object" ||
      (prototype !== null && Object.getPrototypeOf(prototype) !== null)
    ) {
      throw wrongType("what `createContext` returned", "a plain object", made);
    }
    for (const name of Object.keys(made)) {
      if (name in this)
        throw new TypeError(`\`createContext\` must not return a property \`${name}\`: every context has one`);
    }
    return Object.assign(this, made);
  }
}
