/** The longest text that is stored about an error, in UTF-16 units. */
const MAX_LENGTH = 2_000;

/** How many of the errors inside an AggregateError are told. */
const MAX_NESTED = 3;

/**
 * Any thrown value as `Name: message`, at most 2,000 characters that every database can store. Never throws, whatever
 * getters or proxies the value consists of.
 */
export function describeThrown(value: unknown): string {
  if (!isObject(value)) return storable(String(value));
  const nested = readErrors(value);
  if (nested.length === 0) return storable(describe(value));
  // An AggregateError says little by itself; that of a failed connection has no message at all.
  const told = nested.slice(0, MAX_NESTED).map(describe).join("; ");
  return storable(`${describe(value)} (${told}${nested.length > MAX_NESTED ? "; …" : ""})`);
}

/** The same for a value that may be absent. */
export function describeGiven(thrown: unknown): string | undefined {
  return thrown === undefined ? undefined : describeThrown(thrown);
}

/** The name alone, for errors whose message may quote a payload. */
export function nameOfThrown(value: unknown): string {
  return storable(isObject(value) ? nameOf(value) : typeof value);
}

function describe(value: unknown): string {
  if (!isObject(value)) return cut(String(value));
  const name = nameOf(value);
  if (typeof value === "function") return `[function ${name}]`;
  const message = readText(value, "message");
  return message === "" ? name : `${name}: ${message}`;
}

/** `class InvalidAddress extends Error {}` has the name "Error" unless somebody set it: its constructor knows better. */
function nameOf(value: object): string {
  const name = readText(value, "name");
  if (name !== "" && name !== "Error") return name;
  const maker = read(value, "constructor");
  return (isObject(maker) && readText(maker, "name")) || name || "Object";
}

function readErrors(value: object): readonly unknown[] {
  try {
    const errors = read(value, "errors");
    return value instanceof Error && Array.isArray(errors) ? errors.slice(0, MAX_NESTED + 1) : [];
  } catch {
    return []; // a proxy that throws even at this
  }
}

function readText(value: object, key: string): string {
  const text = read(value, key);
  return typeof text === "string" ? cut(text) : "";
}

function read(value: object, key: string): unknown {
  try {
    return Reflect.get(value, key);
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

/** Cuts early: messages of hundreds of megabytes must not be added up, or searched. */
function cut(text: string): string {
  return text.length <= MAX_LENGTH ? text : text.slice(0, MAX_LENGTH + 1);
}

function storable(text: string): string {
  const end = /[\uD800-\uDBFF]/.test(text.charAt(MAX_LENGTH - 2)) ? MAX_LENGTH - 2 : MAX_LENGTH - 1;
  const short = text.length <= MAX_LENGTH ? text : `${text.slice(0, end)}…`;
  return short.replace(/\p{Surrogate}|\0/gu, "\uFFFD");
}
