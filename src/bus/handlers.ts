import { type AnyEventDefinition, eventType } from "./definition.ts";
import type { Event } from "./event.ts";
import type { EventContext } from "./event-context.ts";
import type { BusTopology } from "./topology.ts";

/** What a handler may return: events are dispatched together with the acknowledgement. */
// biome-ignore lint/suspicious/noConfusingVoidType: a function that is declared to return nothing is a handler
export type HandlerResult = void | undefined | null | Event | readonly Event[];

/** Handles an event. Returning acknowledges it; throwing has it delivered again, or makes it a dead letter. */
export type EventHandler<Data, Context extends object = object> = (
  event: Event<Data>,
  context: EventContext & Context,
) => HandlerResult | PromiseLike<HandlerResult>;

export type AnyHandler = (event: Event, context: EventContext) => unknown;

/** The handlers of one subscription in this process: at most one for each type, and one for all others (`"*"`). */
export class Handlers {
  readonly #subscription: string;
  readonly #topology: BusTopology;
  readonly #byPattern = new Map<string, AnyHandler>();
  readonly #definitions: Map<string, AnyEventDefinition>;

  /** `definitions` are those of the whole bus, by type. */
  constructor(subscription: string, topology: BusTopology, definitions: Map<string, AnyEventDefinition>) {
    this.#subscription = subscription;
    this.#topology = topology;
    this.#definitions = definitions;
  }

  get any(): boolean {
    return this.#byPattern.size > 0;
  }

  /** Throws if the pattern is taken, or if the topology does not route such events here. */
  add(pattern: AnyEventDefinition | string, handler: AnyHandler): void {
    const type = typeof pattern === "string" ? patternType(pattern) : pattern.type;
    const where = `subscription "${this.#subscription}"`;
    if (this.#byPattern.has(type)) throw new Error(`There is a handler for "${type}" in ${where} already`);
    if (type !== "*" && !this.#topology.subscriptionsFor(type).includes(this.#subscription)) {
      throw new Error(`The topology does not route "${type}" to ${where}: add it there`);
    }
    if (typeof pattern !== "string") {
      const known = this.#definitions.get(type);
      if (known !== undefined && known !== pattern) {
        throw new Error(
          `There is another definition of "${type}" on this bus: use the same one in the topology and for all handlers`,
        );
      }
      this.#definitions.set(type, pattern);
    }
    this.#byPattern.set(type, handler);
  }

  of(type: string): AnyHandler | undefined {
    return this.#byPattern.get(type) ?? this.#byPattern.get("*");
  }

  definitionOf(type: string): AnyEventDefinition | undefined {
    return this.#definitions.get(type);
  }

  /** Throws if there is none for one of the types that the topology routes here. */
  assertComplete(): void {
    const { routes } = this.#topology;
    const own = routes[this.#subscription] ?? [];
    // Which types there are besides those that it names, a topology cannot tell.
    const types = own.includes("*") ? Object.values(routes).flat() : own;
    const lacking = [...new Set(types)].filter((type) => type !== "*" && this.of(type) === undefined);
    if (lacking.length === 0) return;
    const names = lacking.map((type) => `"${type}"`).join(", ");
    throw new Error(
      `Subscription "${this.#subscription}" has handlers here, but none for ${names}, which the topology routes to it: add them, or one for "*"`,
    );
  }
}

function patternType(pattern: string): string {
  return pattern === "*" ? pattern : eventType(pattern, "pattern");
}
