import { createHash } from "node:crypto";
import fc from "fast-check";
import { InvalidEventError } from "localqueue";
import { describe, expect, test } from "vitest";
import { canonicalJson } from "../dist/bus/canonical-json.js";
import { defineEvent } from "../dist/bus/definition.js";
import { identityOf } from "../dist/bus/event.js";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

describe("the identity of an event", () => {
  const Contact = defineEvent("contact.creation-requested", undefined, { identity: ["cnpj"] });

  test("is that of the Python package, byte for byte", () => {
    expect(identityOf(Contact({ cnpj: "12345678000190", nome: "José 太郎 😀" }))).toEqual({
      key: "event-identity:v1:2be10f547eb6c3ef1df61b0031d88da1ebbf189fe58353bc46012aaddc4d4a6a",
      fingerprint: "event-payload:v1:a0f39873156f951deaef807e86d0077ddf975750c620f2a70f77c9e1fd6ad7d9",
    });
  });

  test("is that of the Python package for all kinds of values", () => {
    const Mix = defineEvent("Mix", undefined, { version: 3, identity: ["tenant", "n"] });
    const tenant = 'a"b\\c\n\u0001\u007f/';
    const identity = identityOf(
      Mix({
        n: 7,
        tenant,
        t: true,
        nul: null,
        di: { B: 4, a: 3, "😀": 2, "\uE000": 1 },
        li: [1, 2.5, "x", null],
        tu: [1, 2],
        h: 1.5e-7,
        d: new Date("2026-01-02T03:04:05.678Z"),
      }),
    );
    expect(identity?.key).toBe("event-identity:v1:3752374849c8b97f2c7b4d481867e0fb56e98d23fa9e75b79eefa12f5936e125");
    // Computed by Python's json and hashlib.
    expect(identity?.fingerprint).toBe(
      "event-payload:v1:92bed4538aacbc54e1eabb5f92f92f6126bf465ee59eb4a847c5eb558cd54062",
    );
  });

  test("does not depend on the order of fields, neither in the definition nor in the data", () => {
    const pair = (...identity: ("a" | "b")[]) => defineEvent<{ a: number; b: number }>("pair", undefined, { identity });
    const first = identityOf(pair("a", "b")({ a: 1, b: 2 }));
    expect(identityOf(pair("b", "a")({ b: 2, a: 1 }))).toEqual(first);
    expect(identityOf(pair("a")({ a: 1, b: 2 }))?.key).not.toBe(first?.key);
  });

  test("depends on the type, the version, and for the fingerprint on all of the data", () => {
    const of = (type: string, version: number, other: number) =>
      identityOf(defineEvent(type, undefined, { version, identity: ["id"] })({ id: "7", other }));
    const first = of("order", 1, 1);
    expect(of("order", 2, 1)?.key).not.toBe(first?.key);
    expect(of("orders", 1, 1)?.key).not.toBe(first?.key);
    expect(of("order", 1, 2)?.key).toBe(first?.key);
    expect(of("order", 1, 2)?.fingerprint).not.toBe(first?.fingerprint);
  });

  test("does not depend on ids and times", () => {
    const again = Contact({ cnpj: "1" }, { createdAt: new Date(0), correlationId: crypto.randomUUID() });
    expect(identityOf(Contact({ cnpj: "1" }))).toEqual(identityOf(again));
  });

  test("is a matter of definitions that declare one", () => {
    expect(identityOf(defineEvent("plain")({ cnpj: "1" }))).toBeUndefined();
  });

  test.each([
    ["missing", {}],
    ["missing", { cnpj: undefined }],
    ["missing", Object.create({ cnpj: "1" })],
    ["null", { cnpj: null }],
    ["blank", { cnpj: "" }],
    ["blank", { cnpj: " \t\n" }],
  ])("is refused when a field is %s", (problem, data) => {
    expect(() => Contact(data)).toThrow(InvalidEventError);
    expect(() => Contact(data)).toThrow(`\`cnpj\` belongs to the identity of \`contact.creation-requested@1\``);
    expect(() => Contact(data)).toThrow(problem);
  });

  test("may have values that are falsy, or no strings", () => {
    for (const cnpj of [0, false, [], {}]) expect(identityOf(Contact({ cnpj }))?.key).toMatch(/^event-identity:v1:/);
  });

  test("is refused for strings that have no UTF-8, in keys as well", () => {
    for (const data of [{ cnpj: "\uD800" }, { cnpj: "1", other: "\uDC00" }, { cnpj: "1", "\uDBFF": 1 }]) {
      expect(() => Contact(data)).toThrow(InvalidEventError);
    }
  });
});

describe("canonical JSON", () => {
  test.each([
    [0, "0"],
    [-7, "-7"],
    [2 ** 53, "9007199254740992"],
    [2 ** 53 + 2, "9007199254740994.0"],
    [1e15 + 0.5, "1000000000000000.5"],
    [1e16, "1e+16"],
    [-1e16, "-1e+16"],
    [123456789012345680, "1.2345678901234568e+17"],
    [1e-4, "0.0001"],
    [1e-5, "1e-05"],
    [1.5e-7, "1.5e-07"],
    [1e100, "1e+100"],
    [5e-324, "5e-324"],
    [-0, "-0.0"],
    [1 / 3, "0.3333333333333333"],
  ])("has %d as %s", (value, text) => {
    expect(canonicalJson(value)).toBe(text);
  });

  test("escapes what must be escaped, and nothing else", () => {
    expect(canonicalJson('"\\/\b\f\n\r\t\0\u001f\u007f\u2028é😀')).toBe(
      '"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u007f\u2028é😀"',
    );
  });

  test("sorts keys by code point, at each level", () => {
    expect(canonicalJson({ "😀": { b: 1, a: [{ z: 1, y: 2 }] }, "\uE000": 1, "": 2, B: 3, a: 4, aa: 5 })).toBe(
      '{"":2,"B":3,"a":4,"aa":5,"\uE000":1,"😀":{"a":[{"y":2,"z":1}],"b":1}}',
    );
  });

  test("is one text for one value, in the order of UTF-8, and means the same", () => {
    const key = fc.string({ unit: "binary", maxLength: 4 });
    const value = fc.dictionary(key, fc.jsonValue({ noUnicodeString: false }), { noNullPrototype: true });
    fc.assert(
      fc.property(value, (given) => {
        const data = JSON.parse(JSON.stringify(given));
        const text = canonicalJson(data);
        const keys = Object.keys(data).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
        const members = keys.map((name) => `${JSON.stringify(name)}:${canonicalJson(data[name])}`);
        expect(text).toBe(`{${members.join(",")}}`);
        expect(JSON.parse(text)).toEqual(data);
        const reversed = Object.fromEntries(Object.entries(data).reverse());
        expect(canonicalJson(reversed)).toBe(text);
        expect(sha256(text)).toHaveLength(64);
      }),
      { numRuns: 500 },
    );
  });
});
