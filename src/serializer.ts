import { types } from "node:util";
import { PayloadError } from "./errors.ts";
import { encodeJson } from "./json.ts";
import { encodePythonJson, parsePythonJson } from "./python-json.ts";
import { describeThrown, nameOfThrown } from "./thrown.ts";

/**
 * Turns payloads into bytes and back. Both may return a promise. Whatever `encode` throws rejects the `put` with a
 * `PayloadError`; a payload that `decode` throws at becomes a dead letter (`undecodable_payload`), its bytes kept.
 */
export interface Serializer<T> {
  encode(value: T): Uint8Array | PromiseLike<Uint8Array>;
  decode(bytes: Uint8Array): T | PromiseLike<T>;
}

/** The type of `jsonSerializer` and `pythonJsonSerializer`, which fit every queue. */
export interface JsonSerializer {
  encode(value: unknown): Uint8Array;
  decode<T = unknown>(bytes: Uint8Array): T;
}

const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * The default serializer: JSON in UTF-8. Refuses what JSON would change without a word (NaN, Map, Buffer, …) with a
 * `PayloadError` that names the place.
 */
export const jsonSerializer: JsonSerializer = Object.freeze({
  encode: (value: unknown): Uint8Array => utf8Encoder.encode(encodeJson(value)),
  decode: <T = unknown>(bytes: Uint8Array): T => parseJson(textOf(bytes)),
});

/**
 * JSON as Python's `json` module writes and reads it, for queues that are shared with Python: integers beyond 2^53 - 1
 * are a BigInt, exact, and NaN, Infinity and -Infinity are kept. Otherwise as `jsonSerializer`.
 */
export const pythonJsonSerializer: JsonSerializer = Object.freeze({
  encode: (value: unknown): Uint8Array => utf8Encoder.encode(encodePythonJson(value)),
  decode: <T = unknown>(bytes: Uint8Array): T => parseJson(textOf(bytes), parsePythonJson),
});

function textOf(bytes: Uint8Array): string {
  try {
    return utf8Decoder.decode(bytes);
  } catch {
    // biome-ignore lint/style/useErrorCause: see below
    throw new PayloadError("The payload is not valid UTF-8");
  }
}

function parseJson<T>(text: string, parse: (text: string) => unknown = JSON.parse): T {
  try {
    return parse(text) as T;
  } catch {
    // biome-ignore lint/style/useErrorCause: the messages of JSON.parse quote the text, and errors never quote a payload
    throw new PayloadError("The payload is not valid JSON");
  }
}

/** Decodes what a storage gives. It gives text only to queues of `jsonSerializer`. */
export function decode<T>(serializer: Serializer<T>, payload: Encoded): T | PromiseLike<T> {
  return typeof payload === "string" ? parseJson(payload) : serializer.decode(payload);
}

/** What a storage takes: bytes, or text that it stores as UTF-8. */
export type Encoded = Uint8Array | string;

/** Encodes in the caller's stack. Throws only for JSON; what goes wrong in a serializer of the user's is a rejection. */
export function encode<T>(serializer: Serializer<T>, value: T): Encoded | Promise<Uint8Array> {
  if (serializer === jsonSerializer) return encodeJson(value);
  try {
    const encoded = serializer.encode(value);
    return types.isUint8Array(encoded) ? encoded : awaitBytes(encoded);
  } catch (error) {
    return Promise.reject(encodingFailed(error));
  }
}

/** The same for several values. What a serializer returned at once is copied: it may use one buffer for all. */
export function encodeAll<T>(serializer: Serializer<T>, values: readonly T[]): Encoded[] | Promise<Encoded[]> {
  const all = values.map((value, index) => encodeItem(serializer, value, index));
  return all.every((encoded): encoded is Encoded => !(encoded instanceof Promise)) ? all : Promise.all(all);
}

function encodeItem<T>(serializer: Serializer<T>, value: T, index: number): Encoded | Promise<Encoded> {
  const refuse = (error: PayloadError): never => {
    throw new PayloadError(
      `Item ${index}: ${error.message}`,
      error.cause === undefined ? undefined : { cause: error.cause },
    );
  };
  try {
    const encoded = encode(serializer, value);
    if (encoded instanceof Promise) return encoded.catch(refuse);
    return typeof encoded === "string" ? encoded : new Uint8Array(encoded);
  } catch (error) {
    return refuse(error as PayloadError);
  }
}

async function awaitBytes(encoding: PromiseLike<Uint8Array>): Promise<Uint8Array> {
  let bytes: unknown;
  try {
    bytes = await encoding;
  } catch (error) {
    throw encodingFailed(error);
  }
  if (!types.isUint8Array(bytes)) throw new PayloadError("Expected `encode` of the serializer to give a Uint8Array");
  return bytes;
}

function encodingFailed(cause: unknown): PayloadError {
  return cause instanceof PayloadError
    ? cause
    : new PayloadError("The serializer could not encode the payload", { cause });
}

/** Why a payload could not be decoded. Quotes only what is known not to quote the payload. */
export function describeDecodeError(serializer: unknown, error: unknown): string {
  if (serializer === jsonSerializer || serializer === pythonJsonSerializer) return describeThrown(error);
  return `${nameOfThrown(error)}: the serializer could not decode the payload`;
}
