/**
 * The checks of all options and arguments, in one wording: "Expected `leaseMs` to be an integer from 10 to 86400000,
 * got `0` (number)". The wrong kind of value is a `TypeError`, one that is out of range a `RangeError`.
 */

/** Returns the value if it is acceptable for the option `name`, else throws. */
export type Check<T> = (value: unknown, name: string) => T;

export interface Option<T> {
  readonly check: Check<T>;
  /** What an option that was left out stands for; without one, it must not be left out. */
  readonly fallback?: T;
}

/** The options `T` with nothing left out; those named in `Defaulted` have a default. */
export type Full<T, Defaulted extends keyof T = never> = {
  readonly [K in keyof T]-?: K extends Defaulted ? Exclude<T[K], undefined> : T[K];
};

/** The known options of a set, by name. */
export type KnownOptions<T> = { readonly [K in keyof T]: Option<T[K]> };

/** `name` is what the set itself is called. */
export type OptionsReader<T> = (options: unknown, name?: string) => Readonly<T>;

/** `setTimeout` turns anything longer into 1 ms. */
export const LONGEST_TIMER_MS = 2_147_483_647;

/** About 253,000 years: the time at which a job becomes due stays a valid `Date`, and well below 2^53. */
export const LONGEST_DELAY_MS = 8_000_000_000_000_000;

export function option<T>(check: Check<T>, fallback: T): Option<T> {
  return { check, fallback };
}

export function optional<T>(check: Check<T>): Option<T | undefined> {
  return { check, fallback: undefined };
}

export function required<T>(check: Check<T>): Option<T> {
  return { check };
}

/**
 * Makes the function that reads one set of options: unknown names are refused, an explicit `undefined` counts as
 * absent, and the result is complete and frozen.
 */
export function optionsReader<T extends object>(known: KnownOptions<T>): OptionsReader<T> {
  const names = Object.keys(known) as (keyof T & string)[];
  const read = (given: Readonly<Record<string, unknown>>): Readonly<T> => {
    const full: Partial<T> = {};
    for (const name of names) {
      const value = given[name];
      const option = known[name];
      full[name] = value === undefined && "fallback" in option ? option.fallback : option.check(value, name);
    }
    return Object.freeze(full as T);
  };
  let defaults: Readonly<T> | undefined;
  return (options, set = "options") => {
    if (options === undefined) {
      defaults ??= read({});
      return defaults;
    }
    const given = anyOptions(options, set);
    for (const name of Object.keys(given)) {
      if (!Object.hasOwn(known, name) && given[name] !== undefined) throw unknownName("option", name, names);
    }
    return read(given);
  };
}

export function wrongType(name: string, expected: string, value: unknown): TypeError {
  return new TypeError(`Expected \`${name}\` to be ${expected}, got ${shown(value)}`);
}

export function outOfRange(name: string, expected: string, value: unknown): RangeError {
  return new RangeError(`Expected \`${name}\` to be ${expected}, got ${shown(value)}`);
}

export function unknownName(what: string, name: string, known: readonly string[]): TypeError {
  const nearest = nearestName(name, known);
  const hint = nearest === undefined ? `known: ${known.map(quoted).join(", ")}` : `did you mean ${quoted(nearest)}?`;
  return new TypeError(`Unknown ${what} ${quoted(name)}; ${hint}`);
}

export function integer(min: number, max: number, remark = ""): Check<number> {
  const expected = `an integer from ${min} to ${max}${remark}`;
  return (value, name) => {
    if (typeof value !== "number") throw wrongType(name, expected, value);
    if (!Number.isInteger(value) || value < min || value > max) throw outOfRange(name, expected, value);
    return value + 0; // -0 becomes 0
  };
}

export function finite(min: number, max: number = Number.MAX_VALUE): Check<number> {
  const expected = `a finite number from ${min} up${max === Number.MAX_VALUE ? "" : ` to ${max}`}`;
  return (value, name) => {
    if (typeof value !== "number") throw wrongType(name, expected, value);
    if (!(value >= min && value <= max)) throw outOfRange(name, expected, value);
    return value + 0;
  };
}

export const boolean: Check<boolean> = (value, name) => {
  if (typeof value !== "boolean") throw wrongType(name, "a boolean", value);
  return value;
};

export const anyText: Check<string> = (value, name) => {
  if (typeof value !== "string") throw wrongType(name, "a string", value);
  return value;
};

export function oneOf<T extends string>(values: readonly T[]): Check<T> {
  const expected = `one of ${values.map((value) => `"${value}"`).join(", ")}`;
  return (value, name) => {
    if (typeof value !== "string") throw wrongType(name, expected, value);
    if (!values.includes(value as T)) throw outOfRange(name, expected, value);
    return value as T;
  };
}

/** A text that every database can store and index: no NUL, and only whole surrogate pairs. */
export function text(maxCharacters: number): Check<string> {
  const expected = `a string of 1 to ${maxCharacters} characters without NUL or lone surrogates`;
  return (value, name) => {
    if (typeof value !== "string") throw wrongType(name, expected, value);
    const tooLong =
      value.length > maxCharacters && (value.length > 2 * maxCharacters || [...value].length > maxCharacters);
    if (value === "" || tooLong || !isStorable(value)) throw outOfRange(name, expected, value);
    return value;
  };
}

/** By structure: a signal may come from another realm, or from a polyfill. */
export const abortSignal: Check<AbortSignal> = (value, name) => {
  const signal = value as Partial<AbortSignal> | null | undefined;
  if (
    typeof signal !== "object" ||
    signal === null ||
    typeof signal.aborted !== "boolean" ||
    typeof signal.addEventListener !== "function" ||
    typeof signal.removeEventListener !== "function"
  ) {
    throw wrongType(name, "an AbortSignal", value);
  }
  return signal as AbortSignal;
};

export function functionOf<T>(): Check<T> {
  return (value, name) => {
    if (typeof value !== "function") throw wrongType(name, "a function", value);
    return value as T;
  };
}

export const whole: {
  readonly leaseMs: Check<number>;
  readonly delayMs: Check<number>;
  readonly retries: Check<number>;
} = {
  leaseMs: integer(10, 86_400_000),
  delayMs: integer(0, LONGEST_DELAY_MS),
  retries: integer(0, 2_147_483_646),
};

export function isStorable(value: string): boolean {
  return !/\p{Surrogate}|\0/u.test(value);
}

/** An object that can carry options: not null, an array, a function, or an instance of a built-in class. */
function anyOptions(value: unknown, name: string): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || kindOf(value) !== "Object") throw wrongType(name, "an object", value);
  return value as Readonly<Record<string, unknown>>;
}

function kindOf(value: unknown): string {
  try {
    return Object.prototype.toString.call(value).slice(8, -1);
  } catch {
    return "unreadable"; // a proxy that throws even at this, or was revoked
  }
}

/** Objects are shown by their kind only: what is in the wrong place may be a payload. */
function shown(value: unknown): string {
  switch (typeof value) {
    case "string":
      return `${quoted(JSON.stringify(value))} (string)`;
    case "object":
      return value === null ? "`null`" : `${quoted(kindOf(value))} (object)`;
    case "function":
      return "a function";
    case "undefined":
      return "`undefined`";
    default:
      return `${quoted(String(value))} (${typeof value})`;
  }
}

function quoted(text: string): string {
  return `\`${text.length > 60 ? `${text.slice(0, 59)}…` : text}\``;
}

/** The known name that `name` most likely stands for, if one is near enough. */
function nearestName(name: string, known: readonly string[]): string | undefined {
  const simple = (text: string): string => text.replaceAll("_", "").toLowerCase().slice(0, 50);
  let nearest: string | undefined;
  let best = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    const distance = editDistance(simple(name), simple(candidate));
    if (distance < best && distance <= Math.max(2, candidate.length / 3)) [nearest, best] = [candidate, distance];
  }
  return nearest;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (const [i, charA] of [...a].entries()) {
    const next = [i + 1];
    for (const [j, charB] of [...b].entries()) {
      const substituted = (row[j] ?? 0) + (charA === charB ? 0 : 1);
      next.push(Math.min(substituted, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

/** Also for one of another realm, whose `Object` is another one. */
export function isPlainObject(value: unknown): value is object {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
