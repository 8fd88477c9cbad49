import { type Dialect, encodeJson, isRawJson } from "./json.ts";

/*
 * JSON as Python's `json` writes and reads it: integers of any size, and the words NaN, Infinity and -Infinity. A
 * number that is no safe integer is a `float` there, whatever it looks like here.
 */

/** Python refuses to read integers of more digits (`sys.set_int_max_str_digits`). */
const MOST_DIGITS = 4300;

const PYTHON: Dialect = {
  keeps: (number) =>
    Number.isSafeInteger(number) ? !Object.is(number, -0) : Number.isFinite(number) && !Number.isInteger(number),
  problem: (value) =>
    typeof value === "bigint" && isTooLong(String(value))
      ? `is a BigInt of more than ${MOST_DIGITS} digits`
      : undefined,
  write,
};

function isTooLong(integer: string): boolean {
  return integer.replace("-", "").length > MOST_DIGITS;
}

/** Refuses what `encodeJson` refuses, but for numbers. */
export function encodePythonJson(value: unknown): string {
  return encodeJson(value, PYTHON);
}

function write(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  switch (typeof value) {
    case "bigint":
      return String(value);
    case "number":
      return writeNumber(value);
    case "object":
      if (value === null || isRawJson(value)) return JSON.stringify(value);
      return `{${Object.entries(value)
        .map(([key, item]) => `${JSON.stringify(key)}:${write(item)}`)
        .join(",")}}`;
    default:
      return JSON.stringify(value);
  }
}

function writeNumber(number: number): string {
  if (PYTHON.keeps(number)) return String(number);
  const text = Object.is(number, -0) ? "-0" : String(number);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

/** Sixteen digits that are no fraction: there may be an integer which a number would round. */
const LONG_INTEGER = /[^.\d]\d{16}|^\d{16}/;

/** Integers that are not safe come as BigInt. Throws if this is not JSON. */
export function parsePythonJson(text: string): unknown {
  if (!LONG_INTEGER.test(text)) {
    try {
      return JSON.parse(text);
    } catch {
      // Perhaps only because of NaN or Infinity.
    }
  }
  return new Reader(text).read();
}

const WORDS: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ["null", null],
  ["true", true],
  ["false", false],
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["-Infinity", Number.NEGATIVE_INFINITY],
]);

/** Reads a text value by value, as `JSON.parse` does, only much slower. */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  read(): unknown {
    const value = this.#value();
    if (this.#peek() !== undefined) throw new SyntaxError("There is more");
    return value;
  }

  #value(): unknown {
    switch (this.#peek()) {
      case "{":
        return this.#object();
      case "[":
        return this.#array();
      case '"':
        return this.#string();
      default:
        return this.#scalar();
    }
  }

  #object(): object {
    const object: Record<string, unknown> = {};
    for (let more = this.#opens("}"); more; more = this.#continues("}")) {
      if (this.#peek() !== '"') throw new SyntaxError("A key was expected");
      const key = this.#string();
      this.#expect(":");
      const value = this.#value();
      // An assignment would set the prototype, or fail where the prototype of all objects is frozen.
      if (!(key in Object.prototype)) object[key] = value;
      else Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
    }
    return object;
  }

  #array(): unknown[] {
    const array: unknown[] = [];
    for (let more = this.#opens("]"); more; more = this.#continues("]")) array.push(this.#value());
    return array;
  }

  /** Steps over the bracket, and over the closing one if there is nothing in between. */
  #opens(closing: string): boolean {
    this.#at++;
    if (this.#peek() !== closing) return true;
    this.#at++;
    return false;
  }

  #continues(closing: string): boolean {
    if (this.#peek() === closing) {
      this.#at++;
      return false;
    }
    this.#expect(",");
    return true;
  }

  #string(): string {
    const start = this.#at;
    let end = start;
    do end = this.#text.indexOf('"', end + 1);
    while (this.#isEscaped(end));
    if (end < 0) throw new SyntaxError("A string has no end");
    this.#at = end + 1;
    return JSON.parse(this.#text.slice(start, this.#at)) as string;
  }

  #isEscaped(at: number): boolean {
    let before = at;
    while (this.#text[before - 1] === "\\") before--;
    return (at - before) % 2 === 1;
  }

  #scalar(): unknown {
    const scalar = /(null|true|false|NaN|-?Infinity)|-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?/y;
    scalar.lastIndex = this.#at;
    const [text, word, fraction, exponent] = scalar.exec(this.#text) ?? [];
    if (text === undefined) throw new SyntaxError("A value was expected");
    this.#at = scalar.lastIndex;
    if (word !== undefined) return WORDS.get(word);
    const number = Number(text);
    if (fraction !== undefined || exponent !== undefined || Number.isSafeInteger(number)) return number;
    if (isTooLong(text)) throw new SyntaxError(`An integer has more than ${MOST_DIGITS} digits`);
    return BigInt(text);
  }

  #expect(character: string): void {
    if (this.#peek() !== character) throw new SyntaxError(`"${character}" was expected`);
    this.#at++;
  }

  /** The next character that is no white space. */
  #peek(): string | undefined {
    while (" \t\n\r".includes(this.#text[this.#at] ?? "end")) this.#at++;
    return this.#text[this.#at];
  }
}
