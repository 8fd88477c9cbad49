import { types } from "node:util";
import { PayloadError } from "./errors.ts";

/** What a kind of JSON has to say of numbers. */
export interface Dialect {
  /** Whether `JSON.stringify` writes the number as it shall be. */
  readonly keeps: (number: number) => boolean;
  /** Why a number or a BigInt cannot be written, if so. */
  readonly problem: (value: number | bigint) => string | undefined;
  /** Writes plain objects, arrays and primitives. */
  readonly write: (value: unknown) => string;
}

const STANDARD: Dialect = {
  keeps: Number.isFinite,
  problem: (value) => {
    if (typeof value === "bigint") return "is a BigInt";
    return Number.isFinite(value) ? undefined : `is ${value}`;
  },
  write: JSON.stringify,
};

/**
 * The JSON text of a payload. What JSON would lose without a word is refused with a `PayloadError` that names the
 * place. Nearly all payloads are plain data: a lean look at them costs a fraction of `JSON.stringify`. Only
 * the others (`toJSON`, class instances, deep nesting, anything to be refused) are copied first, value by value.
 */
export function encodeJson(value: unknown, dialect: Dialect = STANDARD): string {
  try {
    return isPlain(value, DEEPEST_GLANCE, dialect.keeps)
      ? JSON.stringify(value)
      : dialect.write(plainCopy(value, dialect));
  } catch (error) {
    if (error instanceof PayloadError) throw error;
    const problem = error instanceof RangeError ? "it is nested too deeply or too large" : "it cannot be read";
    throw new PayloadError(`Cannot encode the payload as JSON: ${problem}`, { cause: error });
  }
}

/** Circular values run into this bound, too: only the copy keeps track of ancestors. */
const DEEPEST_GLANCE = 64;

/** Whether `JSON.stringify` keeps all of `value`; `false` = look closer. */
function isPlain(value: unknown, depth: number, keeps: Dialect["keeps"]): boolean {
  switch (typeof value) {
    case "string":
    case "boolean":
      return true;
    case "number":
      return keeps(value);
    case "object":
      break;
    default:
      return false;
  }
  if (value === null) return true;
  if (depth === 0) return false;
  try {
    if (Array.isArray(value)) return isPlainArray(value, depth, keeps);
    const prototype: unknown = Object.getPrototypeOf(value);
    if (prototype === Object.prototype || prototype === null) return isPlainObject(value, depth, keeps);
    return prototype === Date.prototype && isPlainDate(value as Date);
  } catch {
    return false; // A getter or a proxy threw: the copy will meet it again, and say where.
  }
}

function isPlainArray(array: readonly unknown[], depth: number, keeps: Dialect["keeps"]): boolean {
  for (let i = 0; i < array.length; i++) if (!isPlain(array[i], depth - 1, keeps)) return false;
  return !("toJSON" in array);
}

function isPlainObject(object: object, depth: number, keeps: Dialect["keeps"]): boolean {
  if ("toJSON" in object) return false;
  for (const key in object) {
    const value = (object as Record<string, unknown>)[key];
    if (value !== undefined && !isPlain(value, depth - 1, keeps)) return false;
  }
  return true;
}

function isPlainDate(date: Date): boolean {
  return !Number.isNaN(date.getTime()) && date.toJSON === Date.prototype.toJSON;
}

/** Where a value is; the path is only spelled out for an error. */
interface Place {
  readonly parent: Place | undefined;
  readonly key: string | number;
}

/** A copy of plain objects, arrays and primitives, with `toJSON` applied: each getter and each `toJSON` runs once. */
function plainCopy(payload: unknown, dialect: Dialect): unknown {
  const ancestors = new Map<object, Place>();
  const root: Place = { parent: undefined, key: "$" };

  /** As JSON has it: `undefined` for what is dropped from an object and refused elsewhere. */
  const copy = (original: unknown, place: Place): unknown => {
    const value = withToJson(original, place);
    switch (typeof value) {
      case "number":
      case "bigint": {
        const problem = dialect.problem(value);
        if (problem !== undefined) throw refusal(place, problem);
        return value;
      }
      case "object":
        return value === null ? null : copyObject(value, place);
      case "string":
      case "boolean":
        return value;
      default:
        return undefined;
    }
  };

  const copyObject = (object: object, place: Place): unknown => {
    const kind = specialKind(object);
    if (kind === "a raw JSON text") return object;
    if (kind === "a boxed primitive") return copy(object.valueOf(), place);
    if (kind !== undefined) throw refusal(place, `is ${kind}`);
    const ancestor = ancestors.get(object);
    if (ancestor !== undefined) throw refusal(place, `refers back to \`${path(ancestor)}\``);
    ancestors.set(object, place);
    const copied = Array.isArray(object) ? copyItems(object, place) : copyProperties(object, place);
    ancestors.delete(object);
    return copied;
  };

  const copyItems = (array: readonly unknown[], parent: Place): unknown[] => {
    const items: unknown[] = [];
    for (let key = 0; key < array.length; key++) items.push(required(array, { parent, key }));
    return items;
  };

  const copyProperties = (object: object, parent: Place): object => {
    const properties: Record<string, unknown> = {};
    for (const key of Object.keys(object)) {
      const place = { parent, key };
      const value = copy(read(object, key, place), place);
      if (value === undefined) continue;
      if (key !== "__proto__") properties[key] = value;
      else Object.defineProperty(properties, key, { value, enumerable: true });
    }
    return properties;
  };

  const required = (holder: object, place: Place): unknown => {
    const original = read(holder, place.key, place);
    const value = copy(original, place);
    if (value === undefined) throw refusal(place, describeMissing(original));
    return value;
  };

  return required({ $: payload }, root);
}

function read(holder: object, key: string | number, place: Place): unknown {
  try {
    return (holder as Record<string | number, unknown>)[key];
  } catch (cause) {
    throw refusal(place, "cannot be read: its getter threw", cause);
  }
}

function withToJson(value: unknown, place: Place): unknown {
  const kind = typeof value;
  if (value === null || (kind !== "object" && kind !== "function" && kind !== "bigint")) return value;
  // A Buffer has a `toJSON` that turns each byte into several; an invalid date has one that gives null.
  if (ArrayBuffer.isView(value)) throw refusal(place, `is ${specialKind(value)}`);
  if (types.isDate(value) && Number.isNaN(Date.prototype.getTime.call(value)))
    throw refusal(place, "is an invalid date");
  const toJson = read(value as object, "toJSON", place);
  if (typeof toJson !== "function") return value;
  try {
    return toJson.call(value, place.parent === undefined ? "" : String(place.key));
  } catch (cause) {
    throw refusal(place, "has a `toJSON` that threw", cause);
  }
}

type Kind = readonly [check: (value: object) => boolean, kind: string];

const specialKinds: readonly Kind[] = [
  [(value) => types.isBoxedPrimitive(value) && !types.isSymbolObject(value), "a boxed primitive"],
  [types.isMap, "a Map"],
  [types.isSet, "a Set"],
  [Buffer.isBuffer, "a Buffer"],
  [types.isTypedArray, "a typed array"],
  [types.isDataView, "a DataView"],
  [types.isAnyArrayBuffer, "an ArrayBuffer"],
  [types.isRegExp, "a RegExp"],
  [types.isDate, "a Date that `toJSON` returned"],
  [(value) => types.isNativeError(value) || value instanceof Error, "an Error"],
  [types.isPromise, "a Promise"],
  [types.isWeakMap, "a WeakMap"],
  [types.isWeakSet, "a WeakSet"],
  [types.isMapIterator, "an iterator"],
  [types.isSetIterator, "an iterator"],
  [types.isGeneratorObject, "a generator"],
  [types.isSymbolObject, "a symbol"],
];

/** Classes of the platform whose instances JSON turns into `{}`, and that are known by their tag alone. */
const lossyTags = new Set(["WeakRef", "URLSearchParams", "Headers", "FormData", "Blob", "File"]);

/** What an object is, if it is neither an array nor a record of properties as JSON sees it. */
function specialKind(object: object): string | undefined {
  if (isRawJson(object)) return "a raw JSON text";
  const tag = Object.prototype.toString.call(object).slice(8, -1);
  // All of the above have a tag of their own, which a subclass can change but hardly to one of these.
  if (tag === "Object" || tag === "Array") return undefined;
  const special = specialKinds.find(([check]) => check(object));
  return special?.[1] ?? (lossyTags.has(tag) ? `a ${tag}` : undefined);
}

/** `JSON.rawJSON`, in Node 22 and later, marks text that `JSON.stringify` writes as it is. */
export const isRawJson: (value: unknown) => boolean =
  (JSON as { readonly isRawJSON?: (value: unknown) => boolean }).isRawJSON ?? ((): boolean => false);

function describeMissing(original: unknown): string {
  if (typeof original === "function") return "is a function";
  if (typeof original === "symbol") return "is a symbol";
  return original === undefined ? "is undefined" : "has a `toJSON` that returned nothing";
}

function refusal(place: Place, problem: string, cause?: unknown): PayloadError {
  const message = `Cannot encode the payload as JSON: \`${path(place)}\` ${problem}`;
  return new PayloadError(message, cause === undefined ? undefined : { cause });
}

const LONGEST_PATH = 200;

function path(place: Place): string {
  const steps: string[] = [];
  for (let at = place; at.parent !== undefined; at = at.parent) steps.unshift(pathStep(at.key));
  const whole = `$${steps.join("")}`;
  return whole.length <= LONGEST_PATH ? whole : `${whole.slice(0, LONGEST_PATH / 2)}…${whole.slice(-LONGEST_PATH / 2)}`;
}

/** One step of a path, as JavaScript writes it: `.name`, `[0]` or `["a name"]`. */
export function pathStep(key: string | number): string {
  if (typeof key === "number") return `[${key}]`;
  if (/^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(key) && key.length <= 40) return `.${key}`;
  return `[${JSON.stringify(key.length > 40 ? `${key.slice(0, 39)}…` : key)}]`;
}
