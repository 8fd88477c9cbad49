import fc from "fast-check";
import { pythonJsonSerializer } from "localqueue";
import { describe, expect, onTestFinished, test } from "vitest";
import { openQueue } from "../support/queue.ts";
import { PythonQueue } from "./support/python.ts";
import { sharedDirectory } from "./support/sides.ts";

const nested = (depth: number): unknown => JSON.parse("[".repeat(depth) + "]".repeat(depth));

const PAYLOADS: readonly (readonly [what: string, data: unknown])[] = [
  ["null", null],
  ["a boolean", false],
  ["integers up to 2^53 - 1", [0, -1, 9007199254740991, -9007199254740991]],
  ["floats, to the last digit", [0.1, 1 / 3, 1.5e-7, 1e22, 5e-324, 1.7976931348623157e308, -2.5]],
  ["Unicode", { "ключ 键 😀": "José 太郎 😀 \u007f \u2028 \0 \ufeff \uffff" }],
  ["lone surrogates", ["\ud800", "a\udc00b"]],
  ["quotes and backslashes", '"\\/\b\f\n\r\t\\u0041'],
  ["a key called __proto__", JSON.parse('{"__proto__": {"a": 1}, "constructor": 2}')],
  ["keys that look like numbers", { 10: "a", 9: "b", "01": "c" }],
  ["500 levels", nested(500)],
  ["empty things", [{}, [], ""]],
];

describe.each(PAYLOADS)("a payload with %s", (_, data) => {
  test.each(["jsonSerializer", "pythonJsonSerializer"])("crosses both ways with %s", async (serializer) => {
    const { queue, python } = both(serializer === "pythonJsonSerializer");
    const id = await python.put(data);
    expect(await queue.get()).toMatchObject({ id });
    await queue.put(data);
    const job = await python.get({ timeout: 5 });
    expect(JSON.parse(job.text)).toStrictEqual(data);
    await python.put(data);
    expect((await queue.get()).data).toStrictEqual(data);
  });
});

test("a payload of 10 MB crosses both ways", async () => {
  const { queue, python } = both();
  const data = { text: "ä😀 ".repeat(1_250_000), list: Array.from({ length: 100_000 }, (_, i) => i) };
  await python.put(data);
  const job = await queue.get();
  expect(job.data).toEqual(data);
  await queue.put(job.data);
  expect(JSON.parse((await python.get({ timeout: 5 })).text)).toEqual(data);
});

describe("with the default serializer", () => {
  test.each(["NaN", "Infinity", '{"a": [-Infinity]}'])(
    "a payload with %s in it, which JSON does not have, is a dead letter here, and whole for Python",
    async (text) => {
      const { queue, python } = both();
      const id = await python.call<number>("put_text", text);
      const next = await python.put("next");
      expect(await queue.get()).toMatchObject({ id: next });
      const [letter] = await queue.listFailed();
      expect(letter).toMatchObject({ id, reason: "undecodable_payload", decoded: false });
      expect(Buffer.from(letter?.rawPayload ?? []).toString()).toBe(text);
      // Python does not know the reason.
      expect(await python.listFailed()).toMatchObject([{ id, text, reason: "legacy_unknown", attempts: 1 }]);
      await python.call("retry_failed", id);
      expect(await python.get({ timeout: 5 })).toMatchObject({ id, text, attempts: 0 });
    },
  );

  test("integers of Python beyond 2^53 - 1 lose digits without a word", async () => {
    const { queue, python } = both();
    await python.call("put_text", "[9007199254740993, 12345678901234567890]");
    expect((await queue.get()).data).toEqual([9007199254740992, 12345678901234567000]);
  });

  test("numbers beyond 2^53 - 1 are other integers for Python", async () => {
    const { queue, python } = both();
    await queue.put(2 ** 60);
    expect((await python.get({ timeout: 5 })).text).toBe("1152921504606847000");
    expect(2n ** 60n).toBe(1152921504606846976n);
  });
});

describe("with the serializer for Python", () => {
  const SPECIAL: readonly (readonly [text: string, data: unknown])[] = [
    ["9007199254740993", 9007199254740993n],
    ["[-12345678901234567890, 9007199254740991]", [-12345678901234567890n, 9007199254740991]],
    [`1${"0".repeat(4299)}`, 10n ** 4299n],
    [
      '{"a": NaN, "b": [Infinity, -Infinity]}',
      { a: Number.NaN, b: [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY] },
    ],
    ["-0.0", -0],
    ["1.152921504606847e+18", 2 ** 60],
    ["9007199254740992.0", 2 ** 53],
  ];

  test.each(SPECIAL)("%s crosses both ways", async (text, data) => {
    const { queue, python } = both(true);
    await python.call("put_text", text);
    expect((await queue.get()).data).toStrictEqual(data);
    await queue.put(data);
    expect((await python.get({ timeout: 5 })).text).toBe(text);
  });

  test("any value comes back from Python as it was", async () => {
    const { python } = both();
    const value = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 5 },
        fc.string({ unit: "binary" }),
        fc.double(),
        fc.maxSafeInteger(),
        fc.bigInt().filter((n) => n >= 2n ** 53n || n <= -(2n ** 53n)),
        fc.constantFrom(null, true, false),
        fc.array(tie("value")),
        fc.dictionary(fc.string({ unit: "binary" }), tie("value"), { noNullPrototype: true }),
      ),
    })).value;
    await fc.assert(
      fc.asyncProperty(value, async (it) => {
        const text = Buffer.from(pythonJsonSerializer.encode(it)).toString();
        const again = await python.call<string>("json_again", text);
        expect(pythonJsonSerializer.decode(Buffer.from(again))).toStrictEqual(it);
      }),
      { numRuns: 500 },
    );
  });

  test("no integer is accepted that Python would not read", async () => {
    const { queue, python } = both(true);
    await expect(queue.put(10n ** 4300n)).rejects.toMatchObject({ code: "PAYLOAD" });
    await expect(python.call("json_again", `1${"0".repeat(4300)}`)).rejects.toMatchObject({ name: "ValueError" });
  });
});

test.each(['{"a": 1, "a": 2}', " [1 ,\t2]\r\n", '"\\/\\u0041\\ud83d\\ude00"', "1e400", "-0", "0.1e1"])(
  "both read %s alike",
  async (text) => {
    const { python } = both();
    const again = await python.call<string>("json_again", text);
    const here = pythonJsonSerializer.decode(Buffer.from(text));
    // Python tells integers from floats, and has no negative zero among the former.
    expect(pythonJsonSerializer.decode(Buffer.from(again))).toEqual(here === 0 ? 0 : here);
  },
);

test.each(["+1", "01", "1.", "-NaN", "nan", "[1,]", '"\t"', '"\\x"', ""])("neither reads %j", async (text) => {
  const { python } = both();
  await expect(python.call("json_again", text)).rejects.toMatchObject({ name: "JSONDecodeError" });
  expect(() => pythonJsonSerializer.decode(Buffer.from(text))).toThrow("The payload is not valid JSON");
});

test("Python reads about a thousand levels, and keeps a deeper job of ours claimed until it is a dead letter", async () => {
  const { queue, python } = both();
  await queue.put(nested(1100), { maxRetries: 0 });
  await expect(python.get({ timeout: 5 })).rejects.toMatchObject({ name: "RecursionError" });
  expect(await python.stats()).toEqual({ ready: 0, processing: 1, acked: 0, failed: 0 });
});

function both(forPython = false): { queue: ReturnType<typeof openQueue>; python: PythonQueue } {
  const directory = sharedDirectory();
  const python = new PythonQueue(directory);
  onTestFinished(() => python.kill());
  const queue = openQueue({ location: directory, ...(forPython && { serializer: pythonJsonSerializer }) });
  return { queue, python };
}
