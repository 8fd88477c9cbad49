import fc from "fast-check";
import { jsonSerializer, PayloadError } from "localqueue";
import { describe, expect, test } from "vitest";

/** Data with everything in it that a program may hold by mistake. */
const anything = fc.anything({
  withBigInt: true,
  withDate: true,
  withMap: true,
  withSet: true,
  withTypedArray: true,
  withSparseArray: true,
  withNullPrototype: true,
  withBoxedValues: true,
});

describe("the JSON serializer", () => {
  test("gives back every JSON value as it was", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        const stored = jsonSerializer.decode(jsonSerializer.encode(value));
        expect(stored).toEqual(JSON.parse(JSON.stringify(value)));
      }),
      { numRuns: 500 },
    );
  });

  test("writes what JSON.stringify writes, or refuses with a PayloadError", () => {
    fc.assert(
      fc.property(anything, (value) => {
        let bytes: Uint8Array;
        try {
          bytes = jsonSerializer.encode(value);
        } catch (error) {
          expect(error).toBeInstanceOf(PayloadError);
          return;
        }
        expect(new TextDecoder().decode(bytes)).toBe(JSON.stringify(value));
      }),
      { numRuns: 2000 },
    );
  });

  test("keeps any string, lone surrogates and NUL included", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.integer({ min: 0xd800, max: 0xdfff }), (text, surrogate) => {
        const value = { text: `${text}\0${String.fromCharCode(surrogate)}` };
        expect(jsonSerializer.decode(jsonSerializer.encode(value))).toEqual(value);
      }),
    );
  });
});
