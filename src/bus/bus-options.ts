import {
  boolean,
  type Check,
  type Full,
  functionOf,
  integer,
  LONGEST_TIMER_MS,
  type OptionsReader,
  option,
  optional,
  optionsReader,
  required,
  whole,
  wrongType,
} from "../options.ts";
import { type RetentionOptions, readRetention } from "../queue-options.ts";
import { type RunOptions, runOptions } from "../worker-options.ts";
import type { Event } from "./event.ts";
import type { EventContext } from "./event-context.ts";
import { type BusTopology, busName, isTopology } from "./topology.ts";

/**
 * Makes what a program's own handlers find in their context, once for each delivery. It is given what they are given;
 * what it throws counts as thrown by the handler.
 */
export type ContextFactory<Context extends object> = (
  context: EventContext,
  event: Event,
) => Context | PromiseLike<Context>;

/** What an event bus is like, as seen by one object. */
export interface EventBusOptions<Context extends object = object> {
  /** Buses of other names share the database, and nothing else. Default "default". */
  readonly name?: string | undefined;
  /** Who gets which events. */
  readonly topology: BusTopology;
  /** How long a claimed event is the claimer's, in milliseconds, from 10 to 86,400,000. Default 60,000. */
  readonly leaseMs?: number | undefined;
  /** Deliveries after the first, to each subscription. Written with each event when it is dispatched. Default 3. */
  readonly maxRetries?: number | undefined;
  /**
   * `true`: what was confirmed survives a power failure, too. `false`: a power failure may take the last moments
   * (a crash of the process takes nothing). SQLite's default is `false`.
   */
  readonly fsync?: boolean | undefined;
  /** Whether an event that no subscription gets is an error (`NoSubscribersError`). Default `true`. */
  readonly requireSubscribers?: boolean | undefined;
  /** How long events that are done are kept, by any process in which the bus runs. Default: for ever. */
  readonly retention?: RetentionOptions | undefined;
  /** Adds properties to the context of all handlers, once for each delivery. Default: nothing. */
  readonly createContext?: ContextFactory<Context> | undefined;
}

/** How a run of a bus ends. */
export interface BusRunOptions extends RunOptions {
  /**
   * Ends the run when none of its subscriptions has had anything to do for so long, in milliseconds, at least 20. Events
   * that wait for their next delivery do not count. Default: never.
   */
  readonly idleTimeoutMs?: number | undefined;
}

type Bus = Full<EventBusOptions, "name" | "leaseMs" | "maxRetries" | "requireSubscribers">;

const topology: Check<BusTopology> = (value, name) => {
  if (!isTopology(value)) throw wrongType(name, "a BusTopology", value);
  return value;
};

export const readBusOptions: OptionsReader<Bus> = optionsReader<Bus>({
  name: option(busName, "default"),
  topology: required(topology),
  leaseMs: option(whole.leaseMs, 60_000),
  maxRetries: option(whole.retries, 3),
  fsync: optional(boolean),
  requireSubscribers: option(boolean, true),
  retention: optional(readRetention),
  createContext: optional(functionOf<ContextFactory<object>>()),
});

export const readBusRunOptions: OptionsReader<Full<BusRunOptions>> = optionsReader({
  ...runOptions,
  idleTimeoutMs: optional(integer(1, LONGEST_TIMER_MS)),
});
