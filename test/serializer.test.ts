import { runInNewContext } from "node:vm";
import { jsonSerializer, PayloadError, type Serializer } from "localqueue";
import { describe, expect, test } from "vitest";
import { encodeJson } from "../dist/json.js";
import { describeDecodeError, encode, encodeAll } from "../dist/serializer.js";

function refusal(value: unknown): PayloadError {
  try {
    encodeJson(value);
  } catch (error) {
    expect(error).toBeInstanceOf(PayloadError);
    return error as PayloadError;
  }
  throw new Error("It was accepted.");
}

class Point {
  readonly x: number;
  readonly y: number;
  #secret = 5;

  constructor(x: number, y: number) {
    this.x = x;
    this.y = y;
  }

  get sum(): number {
    return this.x + this.y + this.#secret;
  }
}

class Money {
  readonly cents: number;

  constructor(cents: number) {
    this.cents = cents;
  }

  toJSON(key: string): unknown {
    return { cents: this.cents, key };
  }
}

describe("a payload is stored as JSON.stringify writes it", () => {
  const shared = { n: 1 };
  test.each<[string, unknown]>([
    ["null", null],
    ["true", true],
    ["a number", 1.5e-7],
    ["a string", "hello"],
    ["an empty string", ""],
    ["an empty object", {}],
    ["an empty array", []],
    ["nested data", { a: [1, [2, { b: null }]], c: { d: "e" } }],
    [
      "undefined, function and symbol properties, which are dropped",
      { a: undefined, b: () => {}, c: Symbol("c"), d: 1 },
    ],
    ["symbol keys, which are dropped", { [Symbol("a")]: 1, b: 2 }],
    ["negative zero, which becomes 0", { a: -0, b: [-0] }],
    ["an object without a prototype", Object.assign(Object.create(null), { a: 1 })],
    ["objects and arrays of another realm", runInNewContext("({ a: [1, { b: 2 }], at: new Date(5) })")],
    ["a date", { at: new Date(0) }],
    ["a URL", { url: new URL("https://example.com/?a=b") }],
    ["instances of a class", { from: new Point(1, 2), to: [new Point(3, 4)] }],
    ["an instance without any fields", { event: new (class Ping {})() }],
    ["toJSON, which is given the key", { price: new Money(5), list: [new Money(6)] }],
    ["toJSON of the payload itself", new Money(7)],
    ["toJSON that makes the property go away", { gone: { toJSON: () => undefined }, here: 1 }],
    ["toJSON of a Map", { m: Object.assign(new Map([[1, 2]]), { toJSON: () => "a map" }) }],
    ["toJSON of an error", { e: Object.assign(new Error("no"), { toJSON: () => "an error" }) }],
    ["toJSON of a function", { f: Object.assign(() => {}, { toJSON: () => "a function" }) }],
    ["data called toJSON", { toJSON: "data", x: 1 }],
    ["an array with a toJSON", Object.assign([1, 2], { toJSON: () => "list" })],
    ["boxed primitives", { n: Object(5), s: Object("s"), b: Object(true), u: new URL("a:b") }],
    ["the same object twice", { a: shared, b: [shared, shared] }],
    [
      "integer keys, which come first",
      new (class {
        b = 1;
        1 = 2;
        a = 3;
        0 = 4;
      })(),
    ],
    ["lone surrogates", { "\ud800": ["\udfff", "a\ud83d"] }],
    ["NUL", { "a\0b": "\0" }],
    ["the largest and the smallest of numbers", [Number.MAX_VALUE, Number.MIN_VALUE, 2 ** 53]],
    ["a proxy of plain data", new Proxy({ a: [1] }, {})],
    [
      "a getter",
      {
        get a() {
          return 5;
        },
      },
    ],
    ["a thousand keys", Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`key ${i}`, i]))],
  ])("%s", (_, payload) => {
    const text = encodeJson(payload);
    expect(text).toBe(JSON.stringify(payload));
    expect(jsonSerializer.decode(jsonSerializer.encode(payload))).toEqual(JSON.parse(text));
  });

  test("__proto__ is a key like any other, on both ways through", () => {
    for (const extra of ['"a": 1', '"at": "x"']) {
      const payload: object = JSON.parse(`{ ${extra}, "__proto__": { "polluted": true } }`);
      for (const value of [payload, { url: new URL("a:b"), payload }]) {
        expect(encodeJson(value)).toBe(JSON.stringify(value));
        expect(encodeJson(value)).toContain('"__proto__":{"polluted":true}');
      }
      const decoded = jsonSerializer.decode<object>(jsonSerializer.encode(payload));
      expect(Object.hasOwn(decoded, "__proto__")).toBe(true);
      expect("polluted" in decoded).toBe(false);
      expect("polluted" in {}).toBe(false);
    }
  });

  test("each getter and each toJSON of what is looked at closely runs once", () => {
    let calls = 0;
    const payload = new (class {
      url = { toJSON: () => ++calls };
    })();
    expect(encodeJson(payload)).toBe('{"url":1}');
    expect(calls).toBe(1);
  });

  test.runIf("rawJSON" in JSON)("raw JSON text is written as it is", () => {
    const raw = (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON("12345678901234567890");
    expect(encodeJson({ raw })).toBe('{"raw":12345678901234567890}');
    expect(encodeJson({ raw, url: new URL("a:b") })).toBe('{"raw":12345678901234567890,"url":"a:b"}');
  });
});

describe("a payload that JSON would change without a word is refused, with the place", () => {
  const circular: { name: string; self?: unknown; list: unknown[] } = { name: "c", list: [] };
  circular.self = circular;
  const throughArray: { list: unknown[] } = { list: [] };
  throughArray.list.push({ back: throughArray.list });

  test.each<[string, unknown, string]>([
    ["undefined", undefined, "`$` is undefined"],
    ["a function", () => {}, "`$` is a function"],
    ["a class", class {}, "`$` is a function"],
    ["a symbol", Symbol("s"), "`$` is a symbol"],
    ["a BigInt", 5n, "`$` is a BigInt"],
    ["NaN", Number.NaN, "`$` is NaN"],
    ["an infinity", Number.NEGATIVE_INFINITY, "`$` is -Infinity"],
    ["undefined in an array", [1, undefined], "`$[1]` is undefined"],
    ["a hole in an array", new Array(2), "`$[0]` is undefined"],
    ["a function in an array", [() => {}], "`$[0]` is a function"],
    ["a symbol in an array", [Symbol("s")], "`$[0]` is a symbol"],
    ["a nested NaN", { items: [{}, {}, {}, { price: Number.NaN }] }, "`$.items[3].price` is NaN"],
    ["a nested BigInt", { a: { b: 5n } }, "`$.a.b` is a BigInt"],
    ["a boxed NaN", { a: Object(Number.NaN) }, "`$.a` is NaN"],
    ["a boxed BigInt", { a: Object(5n) }, "`$.a` is a BigInt"],
    ["a boxed symbol", { a: Object(Symbol("s")) }, "`$.a` is a symbol"],
    ["an invalid date", { at: new Date("never") }, "`$.at` is an invalid date"],
    ["an invalid date of another realm", { at: runInNewContext("new Date(NaN)") }, "`$.at` is an invalid date"],
    ["a Map", { m: new Map() }, "`$.m` is a Map"],
    ["a Map of another realm", { m: runInNewContext("new Map()") }, "`$.m` is a Map"],
    ["a subclass of Map", { m: new (class Registry extends Map {})() }, "`$.m` is a Map"],
    ["a Set", { s: new Set([1]) }, "`$.s` is a Set"],
    ["a WeakMap", { w: new WeakMap() }, "`$.w` is a WeakMap"],
    ["a WeakSet", { w: new WeakSet() }, "`$.w` is a WeakSet"],
    ["a WeakRef", { w: new WeakRef({}) }, "`$.w` is a WeakRef"],
    ["a promise, which somebody forgot to await", { p: Promise.resolve(1) }, "`$.p` is a Promise"],
    ["a Buffer, although it has a toJSON", { b: Buffer.from("abc") }, "`$.b` is a Buffer"],
    ["a Uint8Array", { b: new Uint8Array(3) }, "`$.b` is a typed array"],
    ["a typed array of another realm", { b: runInNewContext("new Float64Array(3)") }, "`$.b` is a typed array"],
    ["an ArrayBuffer", { b: new ArrayBuffer(3) }, "`$.b` is an ArrayBuffer"],
    ["a SharedArrayBuffer", { b: new SharedArrayBuffer(3) }, "`$.b` is an ArrayBuffer"],
    ["a DataView", { b: new DataView(new ArrayBuffer(3)) }, "`$.b` is a DataView"],
    ["a RegExp", { r: /x/ }, "`$.r` is a RegExp"],
    ["an error", { e: new TypeError("no") }, "`$.e` is an Error"],
    ["an error with fields", { e: Object.assign(new Error("no"), { code: 5 }) }, "`$.e` is an Error"],
    ["an error of another realm", { e: runInNewContext("new Error()") }, "`$.e` is an Error"],
    ["a DOMException", { e: AbortSignal.abort().reason }, "`$.e` is an Error"],
    ["an iterator", { i: new Map().values() }, "`$.i` is an iterator"],
    ["a generator", { g: (function* () {})() }, "`$.g` is a generator"],
    ["search parameters", { q: new URLSearchParams("a=b") }, "`$.q` is a URLSearchParams"],
    ["headers", { h: new Headers({ a: "b" }) }, "`$.h` is a Headers"],
    ["a circle", circular, "`$.self` refers back to `$`"],
    ["a circle through an array", throughArray, "`$.list[0].back` refers back to `$.list`"],
    ["what toJSON returned", { a: { toJSON: () => ({ b: [Number.NaN] }) } }, "`$.a.b[0]` is NaN"],
    ["a date that toJSON returned", { a: { toJSON: () => new Date(0) } }, "`$.a` is a Date that `toJSON` returned"],
    [
      "toJSON that returned nothing for the payload",
      { toJSON: () => undefined },
      "`$` has a `toJSON` that returned nothing",
    ],
    ["toJSON that returned nothing in an array", [{ toJSON() {} }], "`$[0]` has a `toJSON` that returned nothing"],
    ["keys that need quotes", { "a b": { "": { ü: [Number.NaN] } } }, '`$["a b"][""].ü[0]` is NaN'],
  ])("%s", (_, payload, problem) => {
    expect(refusal(payload).message).toBe(`Cannot encode the payload as JSON: ${problem}`);
    expect(refusal(payload).code).toBe("PAYLOAD");
  });

  test("a BigInt is not, once the program has taught it a toJSON", () => {
    Object.defineProperty(BigInt.prototype, "toJSON", { value: String, configurable: true });
    try {
      expect(encodeJson({ n: 5n })).toBe(JSON.stringify({ n: 5n }));
    } finally {
      Reflect.deleteProperty(BigInt.prototype, "toJSON");
    }
  });

  test("the path stays readable however deep the place is", () => {
    let deep: unknown = Number.NaN;
    for (let i = 0; i < 1_000; i++) deep = { [`level ${"x".repeat(100)}`]: deep };
    expect(refusal(deep).message.length).toBeLessThan(300);
  });
});

describe("a payload that makes trouble", () => {
  const boom = new Error("boom");
  const thrower = (): never => {
    throw boom;
  };

  test("by a toJSON that throws is refused with the place and the cause", () => {
    const error = refusal({ a: [{ toJSON: thrower }] });
    expect(error.message).toBe("Cannot encode the payload as JSON: `$.a[0]` has a `toJSON` that threw");
    expect(error.cause).toBe(boom);
  });

  test("by a getter that throws is refused with the place and the cause", () => {
    const error = refusal({ a: Object.defineProperty({}, "b", { get: thrower, enumerable: true }) });
    expect(error.message).toBe("Cannot encode the payload as JSON: `$.a.b` cannot be read: its getter threw");
    expect(error.cause).toBe(boom);
  });

  test("by a proxy that throws is refused", () => {
    const proxy = new Proxy({}, new Proxy({}, { get: () => thrower }));
    expect(refusal({ proxy }).cause).toBe(boom);
    expect(refusal(new Proxy({}, { ownKeys: thrower })).cause).toBe(boom);
  });

  test.each([65, 500, 1_000])("by being %s levels deep is stored all the same", (depth) => {
    let deep: unknown = 1;
    for (let i = 0; i < depth; i++) deep = i % 2 === 0 ? [deep] : { deep };
    expect(encodeJson(deep)).toBe(JSON.stringify(deep));
  });

  test("by being a million levels deep is refused, and not with a RangeError", () => {
    let deep: unknown = 1;
    for (let i = 0; i < 1_000_000; i++) deep = [deep];
    expect(refusal(deep).message).toBe("Cannot encode the payload as JSON: it is nested too deeply or too large");
  });

  test("by being circular and wide is refused quickly", () => {
    const nodes = Array.from({ length: 200 }, () => ({ to: [] as unknown[] }));
    for (const node of nodes) node.to.push(...nodes);
    const started = performance.now();
    expect(refusal(nodes).message).toContain("refers back to");
    expect(performance.now() - started).toBeLessThan(1_000);
  });
});

describe("decoding", () => {
  const decode = (bytes: Uint8Array): unknown => jsonSerializer.decode(bytes);
  const failure = (bytes: Uint8Array): Error => {
    try {
      decode(bytes);
    } catch (error) {
      return error as Error;
    }
    throw new Error("It was accepted.");
  };

  test("reads UTF-8, with or without a byte order mark", () => {
    expect(decode(Buffer.from('{"ü":"🐘"}'))).toEqual({ ü: "🐘" });
    expect(decode(Buffer.from('\ufeff"x"'))).toBe("x");
  });

  test("reads a part of a larger buffer", () => {
    expect(decode(new Uint8Array(Buffer.from("xx[1]xx")).subarray(2, 5))).toEqual([1]);
  });

  test("never quotes what it could not read", () => {
    const secret = Buffer.from('{"password": "hunter2", broken');
    expect(failure(secret)).toEqual(new PayloadError("The payload is not valid JSON"));
    expect(failure(secret).cause).toBeUndefined();
    expect(failure(secret).stack).not.toContain("hunter2");
    expect(failure(Buffer.alloc(0))).toEqual(new PayloadError("The payload is not valid JSON"));
    expect(failure(Buffer.from([0x22, 0xff, 0x22]))).toEqual(new PayloadError("The payload is not valid UTF-8"));
    expect(failure(Buffer.from("NaN"))).toEqual(new PayloadError("The payload is not valid JSON"));
  });

  test("is described by the serializer's own words only if they are ours", () => {
    const quoting = new SyntaxError('Unexpected token in "hunter2"');
    expect(describeDecodeError(jsonSerializer, failure(Buffer.from("hunter2")))).toBe(
      "PayloadError: The payload is not valid JSON",
    );
    expect(describeDecodeError({}, quoting)).toBe("SyntaxError: the serializer could not decode the payload");
    expect(describeDecodeError({}, undefined)).toBe("undefined: the serializer could not decode the payload");
  });
});

describe("a serializer of one's own", () => {
  const serializer = (encodeTo: (value: string) => unknown): Serializer<string> => ({
    encode: encodeTo as Serializer<string>["encode"],
    decode: String,
  });

  test("may answer at once or later, with bytes of any realm", async () => {
    const bytes = Uint8Array.of(1, 2);
    expect(
      encode(
        serializer(() => bytes),
        "x",
      ),
    ).toBe(bytes);
    expect(
      await encode(
        serializer(async () => bytes),
        "x",
      ),
    ).toBe(bytes);
    const foreign: Uint8Array = runInNewContext("Uint8Array.of(3)");
    expect(
      encode(
        serializer(() => foreign),
        "x",
      ),
    ).toBe(foreign);
    expect(
      encode(
        serializer(() => Buffer.from("x")),
        "x",
      ),
    ).toBeInstanceOf(Buffer);
  });

  test.each([undefined, null, "text", 5, [1, 2], new ArrayBuffer(2), new Uint16Array(2), Promise.resolve("text")])(
    "has to give a Uint8Array, not %s",
    async (encoded) => {
      await expect(
        encode(
          serializer(() => encoded),
          "x",
        ),
      ).rejects.toEqual(new PayloadError("Expected `encode` of the serializer to give a Uint8Array"));
    },
  );

  test("may throw or reject: the error is kept as the cause", async () => {
    const boom = new Error("boom");
    const thrower = serializer(() => {
      throw boom;
    });
    for (const failing of [thrower, serializer(() => Promise.reject(boom))]) {
      const error = await Promise.resolve(encode(failing, "x")).catch((reason: unknown) => reason);
      expect(error).toEqual(new PayloadError("The serializer could not encode the payload"));
      expect((error as Error).cause).toBe(boom);
    }
  });

  test("may use one buffer for all", async () => {
    const buffer = new Uint8Array(1);
    const reusing = serializer((value) => {
      buffer[0] = value.charCodeAt(0);
      return buffer;
    });
    expect(await encodeAll(reusing, ["a", "b", "c"])).toEqual([
      Uint8Array.of(97),
      Uint8Array.of(98),
      Uint8Array.of(99),
    ]);
  });

  test("says which item of several it could not encode, and leaves no rejection unhandled", async () => {
    const failing = serializer((value) => {
      if (value === "later") return Promise.reject(new Error("later"));
      throw new Error("now");
    });
    await expect(Promise.resolve(encodeAll(failing, ["later", "now"]))).rejects.toEqual(
      new PayloadError("Item 1: The serializer could not encode the payload"),
    );
    expect(() => encodeAll(jsonSerializer, [1, { a: [5n] }])).toThrow(
      new PayloadError("Item 1: Cannot encode the payload as JSON: `$.a[0]` is a BigInt"),
    );
  });
});
