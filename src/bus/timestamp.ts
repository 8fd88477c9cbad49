/**
 * When an event was created, as the Python package writes and reads it. Its texts go to the microsecond; a `Date` does
 * not, so what was read keeps its text.
 */
export interface Timestamp {
  readonly date: Date;
  readonly text: string;
}

/** From here on, a number of either sign counts milliseconds instead of seconds. */
const MILLISECONDS_FROM = 20_000_000_000;

const ISO =
  /^(\d{4})-(\d\d)-(\d\d)(?:[Tt _](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(Z|z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?)?$/;

const FIRST_MS = Date.parse("0001-01-01T00:00:00Z");
const LAST_MS = Date.parse("9999-12-31T23:59:59.999Z");

/** Years of four digits are all that Python and ISO 8601 can write. */
export function isWritable(date: Date): boolean {
  return date.getTime() >= FIRST_MS && date.getTime() <= LAST_MS;
}

/** As `isoformat()` of Python has it: a fraction only if there is one, of six digits, and no `Z`. */
export function timestampOf(date: Date): Timestamp {
  const [seconds, fraction] = date.toISOString().slice(0, -1).split(".");
  return { date: new Date(date), text: `${seconds}${fraction === "000" ? "" : `.${fraction}000`}+00:00` };
}

/** An ISO text, which is UTC if it does not say, or seconds or milliseconds since 1970. `undefined` for anything else. */
export function readTimestamp(value: unknown): Timestamp | undefined {
  if (typeof value === "number") return fromEpoch(value);
  if (typeof value !== "string") return undefined;
  if (/^[+-]?\d+(\.\d+)?$/.test(value)) return fromEpoch(Number(value));
  const date = fromIso(value);
  return date === undefined ? undefined : { date, text: value };
}

function fromEpoch(value: number): Timestamp | undefined {
  const date = new Date(Math.abs(value) > MILLISECONDS_FROM ? value : value * 1_000);
  return isWritable(date) ? timestampOf(date) : undefined;
}

function fromIso(text: string): Date | undefined {
  const [, year, month, day, hour = "00", minute = "00", second = "00", fraction = "", zone = "Z"] =
    ISO.exec(text) ?? [];
  const local = `${year}-${month}-${day}T${hour}:${minute}:${second}.${fraction.slice(0, 3).padEnd(3, "0")}Z`;
  const time = Date.parse(local);
  // A day that its month does not have comes out as one of the next month; so does hour 24.
  if (Number.isNaN(time) || new Date(time).toISOString() !== local) return undefined;
  const offset = offsetMs(zone);
  const date = new Date(offset === undefined ? Number.NaN : time - offset);
  return isWritable(date) ? date : undefined;
}

function offsetMs(zone: string): number | undefined {
  if (zone.toUpperCase() === "Z") return 0;
  const [hours = 0, minutes = 0, seconds = 0] = (zone.slice(1).match(/\d\d/g) ?? []).map(Number);
  if (hours > 23 || minutes > 59 || seconds > 59) return undefined;
  const ms = ((hours * 60 + minutes) * 60 + seconds) * 1_000;
  return zone.startsWith("-") ? -ms : ms;
}
