import { InvalidEventError } from "../errors.ts";
import { decode, jsonSerializer } from "../serializer.ts";
import { describeThrown } from "../thrown.ts";
import { type AnyEventDefinition, misfit, validatorOf } from "./definition.ts";
import { type Event, makeEvent, recordOf } from "./event.ts";
import { identityOfPayload } from "./identity.ts";
import { memberText } from "./member-text.ts";
import { validate } from "./standard-schema.ts";
import { readTimestamp, type Timestamp } from "./timestamp.ts";
import { readUuid } from "./uuid.ts";

/** An event as it was stored, read but for its data. */
export interface EventEnvelope {
  readonly id: string;
  readonly correlationId: string;
  readonly causationId: string | undefined;
  readonly type: string;
  /** `undefined` if the envelope does not say. */
  readonly schema: string | undefined;
  readonly createdAt: Timestamp;
  readonly payload: Readonly<Record<string, unknown>>;
  /** All of it. */
  readonly stored: Uint8Array | string;
}

/** No delivery of these bytes can succeed. */
export class EnvelopeError extends Error {
  static {
    EnvelopeError.prototype.name = "EnvelopeError";
  }
  readonly reason: "invalid_envelope" | "invalid_payload";

  constructor(reason: EnvelopeError["reason"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

/** What is stored of an event, the keys in the order in which the Python package writes them. */
export function writeEnvelope(event: Event): string {
  const { createdAt, payload } = recordOf(event);
  const head = JSON.stringify({
    event_id: event.id,
    correlation_id: event.correlationId,
    causation_id: event.causationId ?? null,
    event_type: event.type,
    event_schema: event.schema,
    event_created_at: createdAt,
  });
  return `${head.slice(0, -1)},"payload":${payload}}`;
}

/** Reads what was stored, also by the Python package; throws an `EnvelopeError`. */
export function readEnvelope(stored: Uint8Array | string): EventEnvelope {
  const envelope = readObject(stored);
  const { event_type: type, event_schema: schema, payload } = envelope;
  if (typeof type !== "string") throw malformed("`event_type` is missing or no string");
  if (!isObject(payload)) throw malformed("`payload` is missing or no object");

  const createdAt = readTimestamp(envelope["event_created_at"]);
  if (createdAt === undefined) throw invalid("`event_created_at` is missing or no date and time");
  const id = uuidIn(envelope, "event_id");
  // Before its version 1.2, the Python package wrote no lineage.
  const correlationId = "correlation_id" in envelope ? uuidIn(envelope, "correlation_id") : id;
  const causationId = (envelope["causation_id"] ?? null) === null ? undefined : uuidIn(envelope, "causation_id");
  return {
    id,
    correlationId,
    causationId,
    type,
    schema: typeof schema === "string" ? schema : undefined,
    createdAt,
    payload,
    stored,
  };
}

/**
 * The event in an envelope: what was stored goes through the schema of the definition again. A promise if that is
 * asynchronous. Throws, or rejects with, an `EnvelopeError` if it does not fit, and an `InvalidEventError` if the
 * schema threw, which may be otherwise next time.
 */
export function restore(envelope: EventEnvelope, definition: AnyEventDefinition | undefined): Event | Promise<Event> {
  const schema = envelope.schema ?? definition?.schema ?? `${envelope.type}@1`;
  const validator = definition && validatorOf(definition);
  if (validator === undefined) return restored(envelope, schema, definition, envelope.payload);
  const refuse = (issues: string): EnvelopeError => {
    const cause = misfit({ schema: definition?.schema ?? schema })(issues);
    return new EnvelopeError("invalid_payload", cause.message, { cause });
  };
  const data = validate(validator, envelope.payload, refuse);
  return data instanceof Promise
    ? data.then((made) => restored(envelope, schema, definition, made))
    : restored(envelope, schema, definition, data);
}

function restored(
  { id, correlationId, causationId, type, createdAt, stored }: EventEnvelope,
  schema: string,
  definition: AnyEventDefinition | undefined,
  data: unknown,
): Event {
  const fields = { id, type, schema, createdAt: createdAt.date, correlationId, causationId, data };
  return makeEvent(fields, {
    createdAt: createdAt.text,
    given: { correlationId: true, causationId: true },
    validation: undefined,
    // Only needed if the event is dispatched again.
    get payload() {
      const text = typeof stored === "string" ? stored : new TextDecoder().decode(stored);
      return memberText(text, "payload") as string;
    },
    get identity() {
      const fields = definition?.identity;
      return fields && identityOfPayload(schema, fields, JSON.parse(this.payload));
    },
  });
}

function readObject(stored: Uint8Array | string): Readonly<Record<string, unknown>> {
  let envelope: unknown;
  try {
    envelope = decode(jsonSerializer, stored);
  } catch (error) {
    throw malformed(describeThrown(error));
  }
  if (!isObject(envelope)) throw malformed(`expected a JSON object, got ${kindOf(envelope)}`);
  return envelope;
}

function uuidIn(envelope: Readonly<Record<string, unknown>>, name: string): string {
  const uuid = readUuid(envelope[name]);
  if (uuid === undefined) throw invalid(`\`${name}\` is missing or no UUID`);
  return uuid;
}

function malformed(problem: string): EnvelopeError {
  return new EnvelopeError("invalid_envelope", `Malformed envelope: ${problem}`);
}

function invalid(problem: string): EnvelopeError {
  const message = `Invalid event: ${problem}`;
  return new EnvelopeError("invalid_payload", message, { cause: new InvalidEventError(message) });
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}
