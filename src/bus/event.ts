import { hiddenIn, hide } from "../brand.ts";
import { wrongType } from "../options.ts";
import type { Identity } from "./identity.ts";

/** Something that happened, made by calling its definition. Frozen, apart from what `data` refers to. */
export interface Event<Data = unknown> {
  /** A UUID. Each subscription gets an id once. */
  readonly id: string;
  /** The name of its definition: "user.created". */
  readonly type: string;
  /** The name and the version: "user.created@1". */
  readonly schema: string;
  readonly createdAt: Date;
  /** The id of the event that this and all related ones go back to: its own if it goes back to none. */
  readonly correlationId: string;
  /** The id of the event that directly led to this one. */
  readonly causationId: string | undefined;
  /**
   * What the schema of the definition made of what was given; without a schema, that as JSON has it. With an
   * asynchronous schema it is what was given until the event was dispatched.
   */
  readonly data: Data;
}

/** What belongs to an event and is not for users. Other copies of the package read it, so its members are fixed. */
interface EventRecord {
  /** What was given as data, as the JSON that is stored. */
  readonly payload: string;
  /** `createdAt` as it is stored, which may be finer than a `Date`. */
  readonly createdAt: string;
  readonly identity: Identity | undefined;
  /** Which part of the lineage the author of the event gave. */
  readonly given: { readonly correlationId: boolean; readonly causationId: boolean };
  /** The verdict of an asynchronous schema. */
  readonly validation: Promise<void> | undefined;
}

const EVENT = Symbol.for("localqueue.Event");

/** Makes `fields` an event. */
export function makeEvent<Data>(fields: Event<Data>, record: EventRecord): Event<Data> {
  return Object.freeze(hide(fields, EVENT, record));
}

/** Also recognises the events of another copy of the package. A copy of an event is none: nobody knows what is in it. */
export function isEvent(value: unknown): value is Event {
  return hiddenIn(value, EVENT) !== undefined;
}

export function checkEvent(value: unknown, name: string): Event {
  if (!isEvent(value)) throw wrongType(name, "an event made by its definition", value);
  return value;
}

/** Whether the event may be stored: a promise if its schema is asynchronous, which rejects with `InvalidEventError`. */
export function ready(event: Event): void | Promise<void> {
  return recordOf(event).validation;
}

/** What to store of an event that the handler of `parent` emitted: the lineage that its author left open is filled in. */
export function emitted<Data>(event: Event<Data>, parent: Event): Event<Data> {
  const record = recordOf(event);
  const { correlationId, causationId } = record.given;
  if (correlationId && causationId) return event;
  return makeEvent(
    {
      ...event,
      correlationId: correlationId ? event.correlationId : parent.correlationId,
      causationId: causationId ? event.causationId : parent.id,
    },
    { ...record, given: { correlationId: true, causationId: true } },
  );
}

/** By what to recognise the event besides its id, if its definition says so. */
export function identityOf(event: Event): Identity | undefined {
  return recordOf(event).identity;
}

export function recordOf(event: Event): EventRecord {
  return hiddenIn(event, EVENT) as EventRecord;
}
