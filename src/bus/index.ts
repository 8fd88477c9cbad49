export {
  type AnyEventDefinition,
  defineEvent,
  type EventDefinition,
  type EventDefinitionOptions,
  type EventOptions,
} from "./definition.ts";
export type { Event } from "./event.ts";
export type { SchemaIssue, SchemaResult, StandardSchema } from "./standard-schema.ts";
export { BusTopology, type EventPattern } from "./topology.ts";
