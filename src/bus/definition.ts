import { randomUUID } from "node:crypto";
import { types } from "node:util";
import { hiddenIn, hide } from "../brand.ts";
import { InvalidEventError } from "../errors.ts";
import { encodeJson } from "../json.ts";
import {
  type Check,
  type Full,
  integer,
  isStorable,
  type OptionsReader,
  option,
  optional,
  optionsReader,
  outOfRange,
  text,
  wrongType,
} from "../options.ts";
import { checkEvent, type Event, makeEvent } from "./event.ts";
import { type Identity, identityOfPayload } from "./identity.ts";
import { checkSchema, type StandardSchema, validate } from "./standard-schema.ts";
import { isWritable, timestampOf } from "./timestamp.ts";
import { readUuid } from "./uuid.ts";

/** What can be said about a kind of event. */
export interface EventDefinitionOptions<Input> {
  /** A whole number from 1; part of `event.schema`. Default 1. */
  readonly version?: number | undefined;
  /**
   * The fields by whose values an event is recognised: a second one with the same values is not stored again if it
   * says the same, and a `DeduplicationConflictError` if not. Default: only the id counts.
   */
  readonly identity?: readonly (keyof Input & string)[] | undefined;
}

/** What an event may be given; all of it has defaults. */
export interface EventOptions {
  /** A UUID in any usual spelling. Default: a random one. */
  readonly id?: string | undefined;
  /** A UUID. Default: the event's own id, or what the event being handled has when a handler emits this one. */
  readonly correlationId?: string | undefined;
  /** A UUID. Default: none, or the id of the event being handled when a handler emits this one. */
  readonly causationId?: string | undefined;
  /** In the years 1 to 9999. Default: now. */
  readonly createdAt?: Date | undefined;
}

/** A kind of event: call it to make one. `Input` is what is given and stored, `Output` what handlers get. */
export interface EventDefinition<Input, Output = Input> {
  /**
   * Makes an event. Throws an `InvalidEventError` that names the field if the data is no JSON object, or does not fit
   * the schema; an asynchronous schema has the dispatch of the event reject with it.
   */
  (data: Input, options?: EventOptions): Event<Output>;
  /** Makes an event that `parent` led to: it has the same `correlationId`, and the parent's id as `causationId`. */
  from(parent: Event, data: Input): Event<Output>;
  readonly type: string;
  readonly version: number;
  /** The type and the version: "user.created@1". */
  readonly schema: string;
  readonly identity: readonly string[] | undefined;
}

/** Any definition, whatever its data. */
export type AnyEventDefinition = EventDefinition<never, unknown>;

const DEFINITION = Symbol.for("localqueue.EventDefinition");

/** What belongs to a definition and is not for users. Other copies of the package read it. */
interface DefinitionRecord {
  readonly validator: StandardSchema | undefined;
}

/**
 * Defines a kind of event. The data is stored as JSON, and checked as that, here and at each delivery: a date that was
 * given arrives at the schema as a string.
 */
export function defineEvent<Input, Output>(
  type: string,
  schema: StandardSchema<Input, Output>,
  options?: EventDefinitionOptions<NoInfer<Input>>,
): EventDefinition<Input, Output>;
export function defineEvent<Data extends object = Record<string, unknown>>(
  type: string,
  schema?: undefined,
  options?: EventDefinitionOptions<NoInfer<Data>>,
): EventDefinition<Data>;
export function defineEvent(
  type: string,
  schema?: StandardSchema,
  options?: EventDefinitionOptions<Record<string, unknown>>,
): EventDefinition<unknown, unknown> {
  const validator = schema === undefined ? undefined : checkSchema(schema, "schema");
  const { version, identity } = readDefinitionOptions(options);
  const kind: Kind = { type: eventType(type, "type"), version, schema: `${type}@${version}`, identity, validator };
  const create = (data: unknown, options?: EventOptions): Event => createEvent(kind, data, readEventOptions(options));
  const from = (parent: Event, data: unknown): Event => {
    const { id: causationId, correlationId } = checkEvent(parent, "parent");
    return create(data, { correlationId, causationId });
  };
  const definition = Object.assign(create, { from, type: kind.type, version, schema: kind.schema, identity });
  return Object.freeze(hide(definition, DEFINITION, { validator } satisfies DefinitionRecord));
}

/** Also recognises the definitions of another copy of the package. */
export function isDefinition(value: unknown): value is AnyEventDefinition {
  return hiddenIn(value, DEFINITION) !== undefined;
}

export function validatorOf(definition: AnyEventDefinition): StandardSchema | undefined {
  return hiddenIn<DefinitionRecord>(definition, DEFINITION)?.validator;
}

/** The name of a kind of event. */
export const eventType: Check<string> = (value, name) => {
  const checked = text(200)(value, name);
  if (checked.trim() === "") throw outOfRange(name, "a name that is not blank", value);
  if (checked.includes("*")) throw outOfRange(name, "a name without `*`, which stands for all events", value);
  return checked;
};

interface Kind extends DefinitionRecord {
  readonly type: string;
  readonly version: number;
  readonly schema: string;
  readonly identity: readonly string[] | undefined;
}

function createEvent(kind: Kind, given: unknown, options: Full<EventOptions>): Event {
  const id = options.id ?? randomUUID();
  const createdAt = timestampOf(options.createdAt ?? new Date());
  const payload = encodePayload(kind, given);
  // Read back, so that later changes of what was given change nothing, and handlers get the same.
  const input: unknown = JSON.parse(payload);
  const output = kind.validator === undefined ? input : validate(kind.validator, input, misfit(kind));
  const fields = {
    id,
    type: kind.type,
    schema: kind.schema,
    createdAt: createdAt.date,
    correlationId: options.correlationId ?? id,
    causationId: options.causationId,
  };
  const record = {
    payload,
    createdAt: createdAt.text,
    identity: identityFrom(kind, payload),
    given: { correlationId: options.correlationId !== undefined, causationId: options.causationId !== undefined },
    validation: undefined,
  };
  if (!(output instanceof Promise)) return makeEvent({ ...fields, data: output }, record);

  let data = input;
  const validation = output.then((made) => {
    data = made;
  });
  validation.catch(() => {}); // told to whoever dispatches the event, if anybody does
  const pending = {
    ...fields,
    get data() {
      return data;
    },
  };
  return makeEvent(pending, { ...record, validation });
}

function encodePayload({ schema }: Kind, given: unknown): string {
  let payload: string;
  try {
    payload = encodeJson(given);
  } catch (cause) {
    throw new InvalidEventError(`Invalid data of \`${schema}\`: ${(cause as Error).message}`, { cause });
  }
  if (!payload.startsWith("{")) throw new InvalidEventError(`Expected the data of \`${schema}\` to be an object`);
  return payload;
}

/** The error for data that does not fit the schema of its definition. */
export function misfit({ schema }: { readonly schema: string }): (issues: string) => InvalidEventError {
  return (issues) => new InvalidEventError(`The data, as JSON, does not fit the schema of \`${schema}\`: ${issues}`);
}

function identityFrom({ schema, identity }: Kind, payload: string): Identity | undefined {
  return identity === undefined ? undefined : identityOfPayload(schema, identity, JSON.parse(payload));
}

const identityFields: Check<readonly string[]> = (value, name) => {
  const expected = "an array of the names of fields, each once";
  if (!Array.isArray(value)) throw wrongType(name, expected, value);
  for (const field of value) {
    if (typeof field !== "string") throw wrongType(name, expected, field);
    if (field.trim() === "" || !isStorable(field)) throw outOfRange(name, "names that are not blank", field);
  }
  if (value.length === 0 || new Set(value).size < value.length) throw outOfRange(name, expected, value);
  return Object.freeze([...value]);
};

const uuid: Check<string> = (value, name) => {
  const id = readUuid(value);
  if (id === undefined) throw new InvalidEventError(outOfRange(name, "a UUID", value).message);
  return id;
};

const timestamp: Check<Date> = (value, name) => {
  if (!types.isDate(value)) throw wrongType(name, "a Date", value);
  if (!isWritable(value)) throw outOfRange(name, "a date in the years 1 to 9999", value);
  return value;
};

const readDefinitionOptions: OptionsReader<Full<EventDefinitionOptions<Record<string, unknown>>, "version">> =
  optionsReader({
    version: option(integer(1, Number.MAX_SAFE_INTEGER), 1),
    identity: optional(identityFields),
  });

const readEventOptions: OptionsReader<Full<EventOptions>> = optionsReader({
  id: optional(uuid),
  correlationId: optional(uuid),
  causationId: optional(uuid),
  createdAt: optional(timestamp),
});
