export { EventBus } from "./bus.ts";
export type { BusRunOptions, ContextFactory, EventBusOptions } from "./bus-options.ts";
export {
  type AnyEventDefinition,
  defineEvent,
  type EventDefinition,
  type EventDefinitionOptions,
  type EventOptions,
} from "./definition.ts";
export type { DispatchReceipt } from "./dispatcher.ts";
export type { Event } from "./event.ts";
export type { EventContext } from "./event-context.ts";
export type { EventBusEvents } from "./event-work.ts";
export type { FailedDelivery } from "./failed-delivery.ts";
export type { EventHandler, HandlerResult } from "./handlers.ts";
export { type ListSubscriptionsOptions, listSubscriptions, type SubscriptionStats } from "./list-subscriptions.ts";
export type { SchemaIssue, SchemaResult, StandardSchema } from "./standard-schema.ts";
export type { Subscription } from "./subscription.ts";
export { BusTopology, type EventPattern } from "./topology.ts";
