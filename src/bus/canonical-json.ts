/**
 * The one text of a JSON value that the Python package hashes: keys by code point, no spaces, only what must be escaped,
 * numbers as Python prints them. Throws for lone surrogates, which have no UTF-8.
 *
 * JavaScript cannot tell `1` from `1.0`: whole numbers up to 2^53 are taken for integers, all others for floats.
 */
export function canonicalJson(value: unknown): string {
  if (typeof value === "number") return canonicalNumber(value);
  if (typeof value === "string") return canonicalString(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  const members = Object.entries(value).sort(([a], [b]) => compareCodePoints(a, b));
  return `{${members.map(([key, member]) => `${canonicalString(key)}:${canonicalJson(member)}`).join(",")}}`;
}

function canonicalString(value: string): string {
  if (/\p{Surrogate}/u.test(value)) throw new TypeError("A lone surrogate has no UTF-8");
  return JSON.stringify(value);
}

function canonicalNumber(value: number): string {
  const isInteger = Number.isInteger(value) && Math.abs(value) <= 2 ** 53 && !Object.is(value, -0);
  return isInteger ? String(value) : pythonFloat(value);
}

/** `repr` of a Python float: the same digits as here, in another layout. */
function pythonFloat(value: number): string {
  if (Object.is(value, -0)) return "-0.0";
  const [digits, exponent] = value.toExponential().split("e") as [string, string];
  if (Number(exponent) < -4 || Number(exponent) >= 16) {
    return `${digits}e${exponent.charAt(0)}${exponent.slice(1).padStart(2, "0")}`;
  }
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

/** The order of code points differs from that of UTF-16 units where surrogates meet U+E000 and above. */
function compareCodePoints(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const difference = rank(a.charCodeAt(i)) - rank(b.charCodeAt(i));
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

function rank(unit: number): number {
  const isSurrogate = unit >= 0xd800 && unit <= 0xdfff;
  return isSurrogate ? unit + 0x10000 : unit;
}
