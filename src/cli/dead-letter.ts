import { isUtf8 } from "node:buffer";
import type { FailedDetails } from "../index.ts";
import type { Place } from "./place.ts";
import { printable, shortened } from "./wording.ts";

/** Something must be left for the rest of a line. */
const LONGEST_CAUSE = 30;
const LONGEST_TEXT = 20_000;
const LONGEST_DUMP = 256;
const BYTES_PER_LINE = 16;

/**
 * A line of JSON, with the payload under its name if it is JSON, else as `payloadBase64`. The payload's own text is
 * inserted: parsing and writing it again could change it.
 */
export function jsonOf<Letter extends FailedDetails>(
  { about, payload: [, name] }: Place<Letter>,
  letter: Letter,
): string {
  const { id, attempts, reason, category, lastError, createdAt, updatedAt } = letter;
  const members = { id, ...about(letter), attempts, reason, category, lastError, createdAt, updatedAt };
  const report = JSON.stringify(members, (_, value) => value ?? null);
  const { json, bytes } = payloadOf(letter);
  const payload =
    json === undefined ? `"payloadBase64":"${bytes.toString("base64")}"` : `"${name}":${json.replace(/[\r\n]+/g, " ")}`; // line breaks in JSON are white space
  return `${report.slice(0, -1)},${payload}}`;
}

/** The reason, and the category if there is one. */
export function causeOf({ reason, category }: FailedDetails): string {
  return category === undefined ? reason : shortened(`${reason}/${category}`, LONGEST_CAUSE);
}

/** What kind of payload it is, and its lines: JSON, another text, or bytes. */
export function previewOf(letter: FailedDetails): { readonly kind: string; readonly lines: readonly string[] } {
  const { json, text, bytes } = payloadOf(letter);
  if (text === undefined) return { kind: "bytes", lines: hexLines(bytes) };
  const kind = json === undefined ? "text that is not JSON" : "JSON";
  const whole = json === undefined ? text : spread(json);
  const shown = whole.slice(0, LONGEST_TEXT);
  const lines = shown.split(/\r?\n/).map(printable);
  return { kind, lines: shown === whole ? lines : [...lines, "…"] };
}

interface Payload {
  readonly bytes: Buffer;
  /** `undefined` = it is not UTF-8. */
  readonly text: string | undefined;
  /** The same, without white space around it, if it is JSON. */
  readonly json: string | undefined;
}

function payloadOf({ rawPayload }: FailedDetails): Payload {
  const bytes = Buffer.from(rawPayload.buffer, rawPayload.byteOffset, rawPayload.byteLength);
  const text = isUtf8(bytes) ? bytes.toString() : undefined;
  try {
    JSON.parse(text ?? "");
    return { bytes, text, json: text?.trim() };
  } catch {
    return { bytes, text, json: undefined };
  }
}

/** Over several lines, if that changes nothing else. */
function spread(json: string): string {
  const value = JSON.parse(json);
  return JSON.stringify(value) === json ? JSON.stringify(value, undefined, 2) : json;
}

function hexLines(bytes: Buffer): string[] {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, LONGEST_DUMP); at += BYTES_PER_LINE) {
    const part = bytes.subarray(at, at + BYTES_PER_LINE);
    const hex = part.toString("hex").replace(/(..)(?=.)/g, "$1 ");
    const text = part.toString("latin1").replace(/[^ -~]/g, ".");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(BYTES_PER_LINE * 3 - 1)}  ${text}`);
  }
  return bytes.length > LONGEST_DUMP ? [...lines, "…"] : lines;
}
