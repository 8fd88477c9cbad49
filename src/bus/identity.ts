import { createHash } from "node:crypto";
import { InvalidEventError } from "../errors.ts";
import { canonicalJson } from "./canonical-json.ts";

/** By what an event is recognised, and whether it is then the same event. Both are columns of a row. */
export interface Identity {
  /** Of the fields that its definition names. */
  readonly key: string;
  /** Of the whole payload. */
  readonly fingerprint: string;
}

/** The identity of an event by its payload, as the Python package computes it. */
export function identityOfPayload(
  schema: string,
  fields: readonly string[],
  payload: Readonly<Record<string, unknown>>,
): Identity {
  const identity: Record<string, unknown> = Object.create(null);
  for (const field of fields) identity[field] = identifyingValue(schema, field, payload);
  return {
    key: `event-identity:v1:${hash(schema, "identity", identity)}`,
    fingerprint: `event-payload:v1:${hash(schema, "payload", payload)}`,
  };
}

function identifyingValue(schema: string, field: string, payload: Readonly<Record<string, unknown>>): unknown {
  const refusal = (problem: string): InvalidEventError =>
    new InvalidEventError(`\`${field}\` belongs to the identity of \`${schema}\`, but it is ${problem}`);
  if (!Object.hasOwn(payload, field)) throw refusal("missing");
  const value = payload[field];
  if (value === null) throw refusal("null");
  if (typeof value === "string" && isBlank(value)) throw refusal("blank");
  return value;
}

/** As Python sees it, which takes other characters for spaces than `trim` does. */
function isBlank(text: string): boolean {
  return Array.from(text).every((c) => /\p{White_Space}/u.test(c) || (c >= "\x1c" && c <= "\x1f"));
}

function hash(schema: string, name: "identity" | "payload", value: unknown): string {
  try {
    return createHash("sha256")
      .update(canonicalJson({ event_schema: schema, [name]: value }))
      .digest("hex");
  } catch (cause) {
    const problem = cause instanceof RangeError ? "is nested too deeply" : "has a string with a lone surrogate";
    throw new InvalidEventError(`The ${name} of \`${schema}\` cannot be hashed: it ${problem}`, { cause });
  }
}
