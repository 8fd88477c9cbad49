import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { describeThrown, nameOfThrown } from "../dist/thrown.js";
import { hostile, throwing, unreadableError } from "./support/hostile.ts";

describe("what was thrown is described", () => {
  class InvalidAddress extends Error {}
  class Named extends Error {
    override readonly name = "AddressError";
  }

  test.each([
    ["an error", new Error("boom"), "Error: boom"],
    ["an error of a built-in class", new TypeError("boom"), "TypeError: boom"],
    ["an error without a message", new RangeError(), "RangeError"],
    ["an error of a class of one's own", new InvalidAddress("no @"), "InvalidAddress: no @"],
    ["an error with a name of its own", new Named("no @"), "AddressError: no @"],
    ["a frozen error", Object.freeze(new Error("boom")), "Error: boom"],
    ["an error of another realm", runInNewContext("new SyntaxError('boom')"), "SyntaxError: boom"],
    ["a string", "smtp is down", "smtp is down"],
    ["a number", 42, "42"],
    ["a BigInt", 42n, "42"],
    ["a symbol", Symbol("boom"), "Symbol(boom)"],
    ["null", null, "null"],
    ["undefined", undefined, "undefined"],
    ["a class instead of its instance", InvalidAddress, "[function InvalidAddress]"],
    ["an object that looks like an error", { name: "Oops", message: "boom" }, "Oops: boom"],
    ["any other object, without its contents", { secret: "payload" }, "Object"],
    ["an object without a prototype", Object.create(null), "Object"],
    ["an array", ["secret"], "Array"],
    ["an error whose name and message are no strings", { name: 5, message: {} }, "Object"],
  ])("%s", (_, thrown, description) => {
    expect(describeThrown(thrown)).toBe(description);
  });

  test("an AggregateError with the first of its errors", () => {
    const two = new AggregateError([new Error("a"), "b"], "both failed");
    expect(describeThrown(two)).toBe("AggregateError: both failed (Error: a; b)");
    const many = new AggregateError([1, 2, 3, 4].map((n) => new Error(`no ${n}`)));
    expect(describeThrown(many)).toBe("AggregateError (Error: no 1; Error: no 2; Error: no 3; …)");
    expect(describeThrown(new AggregateError([]))).toBe("AggregateError");
  });

  test("an AggregateError of itself", () => {
    const circular = new AggregateError([], "round");
    circular.errors.push(circular);
    expect(describeThrown(circular)).toBe("AggregateError: round (AggregateError: round)");
  });
});

describe("nothing that is thrown can do harm", () => {
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();

  test.each([
    ["an error whose getters throw", unreadableError()],
    ["a proxy that throws at everything", hostile()],
    ["a proxy of a function that throws at everything", hostile(() => {})],
    ["a revoked proxy", revoked.proxy],
    ["an AggregateError of hostile proxies", new AggregateError([hostile(), hostile(() => {})])],
    ["an object that refuses to be a string", { toString: throwing(5), [Symbol.toPrimitive]: throwing(5) }],
  ])("%s", (_, thrown) => {
    expect(typeof describeThrown(thrown)).toBe("string");
    expect(describeThrown(thrown)).not.toBe("");
    expect(typeof nameOfThrown(thrown)).toBe("string");
  });
});

describe("the description can be stored in any database", () => {
  test("it has at most 2,000 characters", () => {
    expect(describeThrown(new Error("x".repeat(1_993)))).toBe(`Error: ${"x".repeat(1_993)}`);
    const long = describeThrown(new Error("x".repeat(1_994)));
    expect(long).toHaveLength(2_000);
    expect(long).toBe(`Error: ${"x".repeat(1_992)}…`);
  });

  test("the largest of messages and names are cut, and quickly", () => {
    const huge = "x".repeat(2 ** 24);
    const all = [huge, Object.assign(new Error(huge), { name: huge }), new AggregateError([huge, huge, huge], huge)];
    const started = performance.now();
    for (const thrown of all) expect(describeThrown(thrown)).toHaveLength(2_000);
    expect(performance.now() - started).toBeLessThan(1_000);
  });

  test("no surrogate pair is cut in two", () => {
    for (let length = 1_990; length < 2_010; length++) {
      const description = describeThrown("x".repeat(length) + "🐘".repeat(10));
      expect(description.length).toBeLessThanOrEqual(2_000);
      expect(Buffer.from(description).toString()).toBe(description);
      expect(description).not.toContain("\uFFFD");
    }
  });

  test("NUL and lone surrogates are replaced", () => {
    expect(describeThrown("a\0b\ud800c\udc00d 🐘")).toBe("a\uFFFDb\uFFFDc\uFFFDd 🐘");
  });
});

test("the name alone quotes nothing of the message", () => {
  expect(nameOfThrown(new SyntaxError("Unexpected token 's', \"secret\" is not valid JSON"))).toBe("SyntaxError");
  expect(nameOfThrown("secret")).toBe("string");
  expect(nameOfThrown(undefined)).toBe("undefined");
});
