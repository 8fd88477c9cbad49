import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { PayloadError, pythonJsonSerializer } from "localqueue";
import { describe, expect, test } from "vitest";
import { openQueue } from "./support/queue.ts";

const decode = (text: string): unknown => pythonJsonSerializer.decode(Buffer.from(text));
const encode = (value: unknown): string => Buffer.from(pythonJsonSerializer.encode(value)).toString();

describe("the serializer for Python reads", () => {
  test.each<[text: string, value: unknown]>([
    ["9007199254740991", 9007199254740991],
    ["9007199254740992", 9007199254740992n],
    ["-9007199254740991", -9007199254740991],
    ["-9007199254740993", -9007199254740993n],
    ["1000000000000000", 1000000000000000],
    [`1${"0".repeat(400)}`, 10n ** 400n],
    ["9007199254740992.0", 9007199254740992],
    ["9007199254740993e0", 9007199254740992],
    ["12345678901234567.25", 12345678901234568],
    ["0.1000000000000000055511151231257827", 0.1],
    ["1e+22", 1e22],
    ["1e400", Number.POSITIVE_INFINITY],
    ["-0.0", -0],
    ["NaN", Number.NaN],
    [" [ NaN , Infinity,\t-Infinity ]\r\n", [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]],
    [
      '{"a": 9007199254740993, "b": [true, false, null, {}, [], -1.5e-7]}',
      { a: 9007199254740993n, b: [true, false, null, {}, [], -1.5e-7] },
    ],
    ['{"a": NaN, "a": 1}', { a: 1 }],
    ['["NaN", "9007199254740993", "\\"\\\\", "\\\\\\"]", NaN]', ["NaN", "9007199254740993", '"\\', '\\"]', Number.NaN]],
    ['["\\ud83d\\ude00 \\ud800 \\u0000", "ä😀", Infinity]', ["😀 \ud800 \0", "ä😀", Number.POSITIVE_INFINITY]],
  ])("%s", (text, value) => {
    expect(decode(text)).toStrictEqual(value);
  });

  test("a key that is called __proto__ like any other", () => {
    const object = decode('{"__proto__": NaN}') as object;
    expect(Object.getPrototypeOf(object)).toBe(Object.prototype);
    expect(Object.entries(object)).toEqual([["__proto__", Number.NaN]]);
  });

  test("names that objects have by themselves, even where those are frozen", () => {
    const script = `import { pythonJsonSerializer } from "localqueue"; Object.freeze(Object.prototype);
      const text = '{"toString": 1, "constructor": NaN, "__proto__": 2}';
      console.log(Object.entries(pythonJsonSerializer.decode(Buffer.from(text))).join());`;
    expect(execFileSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" })).toBe(
      "toString,1,constructor,NaN,__proto__,2\n",
    );
  });

  test("text of any length", () => {
    const long = "\\".repeat(1_000_000) + '"'.repeat(1_000_000);
    expect(decode(`[NaN, ${JSON.stringify(long)}]`)).toEqual([Number.NaN, long]);
  });
});

test.each([
  "",
  " ",
  "nan",
  "+1",
  "-NaN",
  "01",
  "1.",
  ".5",
  "[1,]",
  "[1 2]",
  '{"a" 1}',
  "{NaN: 1}",
  "{,}",
  '"',
  '"\\"',
  "NaN NaN",
  "[NaN",
  '{"a": NaN',
  '["\n", NaN]',
  '["\\x", NaN]',
  "[9007199254740993",
  "9007199254740993.",
  "undefined",
  "1".repeat(4301), // as Python, which would take too long
])("the serializer for Python refuses %j, and does not quote it", (text) => {
  const error = refusal(() => decode(text));
  expect(error.message).toBe("The payload is not valid JSON");
  expect(error.cause).toBeUndefined();
});

describe("the serializer for Python writes", () => {
  test.each<[value: unknown, text: string]>([
    [{ a: [1, "ä", null, true] }, '{"a":[1,"ä",null,true]}'],
    [2n ** 64n, "18446744073709551616"],
    [-1n, "-1"],
    [Number.NaN, "NaN"],
    [{ a: Number.POSITIVE_INFINITY, b: [Number.NEGATIVE_INFINITY] }, '{"a":Infinity,"b":[-Infinity]}'],
    // Numbers that Python would take for other integers than they are.
    [2 ** 60, "1152921504606847000.0"],
    [2 ** 53, "9007199254740992.0"],
    [1e21, "1e+21"],
    [1e300, "1e+300"],
    [-0, "-0.0"],
    [9007199254740991, "9007199254740991"],
    [{ at: new Date(0), n: 1n, '"': undefined }, '{"at":"1970-01-01T00:00:00.000Z","n":1}'],
    [["\ud800\0", 1n], '["\\ud800\\u0000",1]'],
    [JSON.parse('{"__proto__": [1e16]}'), '{"__proto__":[10000000000000000.0]}'],
  ])("%s", (value, text) => {
    expect(encode(value)).toBe(text);
  });

  test.each<[what: string, value: unknown, problem: string]>([
    ["a Map", { a: [new Map()] }, "`$.a[0]` is a Map"],
    ["undefined", [undefined], "`$[0]` is undefined"],
    ["an integer that Python does not read", { n: -(10n ** 4300n) }, "`$.n` is a BigInt of more than 4300 digits"],
  ])("no payload with %s in it", (_, value, problem) => {
    expect(refusal(() => encode(value)).message).toBe(`Cannot encode the payload as JSON: ${problem}`);
  });

  test("what it reads again as it was", () => {
    const value = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 5 },
        fc.string({ unit: "binary" }),
        fc.double(),
        fc.maxSafeInteger(),
        fc.bigInt().filter((n) => n > 2n ** 53n || n < -(2n ** 53n)),
        fc.constantFrom(null, true, false),
        fc.array(tie("value")),
        fc.dictionary(fc.string({ unit: "binary" }), tie("value"), { noNullPrototype: true }),
      ),
    })).value;
    fc.assert(
      fc.property(value, (it) => {
        expect(decode(encode(it))).toStrictEqual(it);
      }),
      { numRuns: 1000 },
    );
  });

  test("and reads whatever the default serializer does, with the same result", () => {
    const value = fc.jsonValue({ noUnicodeString: false }).filter((it) => !/\d{16}/.test(JSON.stringify(it)));
    fc.assert(
      fc.property(value, fc.nat(3), (it, spaces) => {
        const text = JSON.stringify(it, null, spaces);
        // A NaN in front keeps it from taking the short way.
        expect(decode(`[NaN, ${text}]`)).toStrictEqual([Number.NaN, JSON.parse(text)]);
      }),
    );
  });
});

test("a queue with the serializer for Python says so, and keeps what it cannot read", async () => {
  const queue = openQueue({ serializer: pythonJsonSerializer });
  expect(await queue.diagnostics()).toMatchObject({ serializerIdentity: "localqueue.pythonJsonSerializer" });
  await queue.put({ n: 2n ** 64n, x: Number.NaN });
  expect((await queue.get()).data).toStrictEqual({ n: 2n ** 64n, x: Number.NaN });
});

function refusal(work: () => unknown): PayloadError {
  try {
    work();
  } catch (error) {
    expect(error).toBeInstanceOf(PayloadError);
    return error as PayloadError;
  }
  throw new Error("It was accepted.");
}
