import { runInNewContext } from "node:vm";
import { Reject, Retry, RetryPolicy } from "localqueue";
import { describe, expect, test } from "vitest";
import { delayAfter, isReject, isRetryPolicy, namedCategory, requestedDelay } from "../dist/retry.js";
import { hostile, throwing } from "./support/hostile.ts";

const delays = (policy: RetryPolicy, attempts: number): number[] =>
  Array.from({ length: attempts }, (_, i) => delayAfter(policy, i + 1));

describe("an exponential policy", () => {
  test("waits 2 s, 8 s, 32 s, … and never more than 10 minutes", () => {
    const policy = RetryPolicy.exponential({ jitter: false });
    expect(delays(policy, 7)).toEqual([2_000, 8_000, 32_000, 128_000, 512_000, 600_000, 600_000]);
    expect(delayAfter(policy, 1_000_000)).toBe(600_000);
    expect(policy.maxAttempts).toBeUndefined();
  });

  test("takes a random part between half and the whole of each delay", () => {
    const drawn = Array.from({ length: 500 }, () => delayAfter(RetryPolicy.exponential(), 2));
    expect(Math.min(...drawn)).toBeGreaterThanOrEqual(4_000);
    expect(Math.max(...drawn)).toBeLessThanOrEqual(8_000);
    expect(new Set(drawn).size).toBeGreaterThan(100);
    expect(drawn.every(Number.isInteger)).toBe(true);
  });

  test("takes all numbers from its options", () => {
    const policy = RetryPolicy.exponential({ initialMs: 10, factor: 1.5, maxMs: 30, jitter: false, maxAttempts: 7 });
    expect(delays(policy, 5)).toEqual([10, 15, 23, 30, 30]);
    expect(policy.maxAttempts).toBe(7);
  });
});

test("a fixed policy always waits the same", () => {
  expect(delays(RetryPolicy.fixed(750, { maxAttempts: 2 }), 3)).toEqual([750, 750, 750]);
  expect(RetryPolicy.fixed(750, { maxAttempts: 2 }).maxAttempts).toBe(2);
});

test("an immediate policy never waits", () => {
  expect(delays(RetryPolicy.immediate(), 3)).toEqual([0, 0, 0]);
  expect(RetryPolicy.immediate({ maxAttempts: 9 }).maxAttempts).toBe(9);
});

describe("Retry and Reject", () => {
  test("are errors with a name, a stack and what they ask for", () => {
    const retry = new Retry({ delayMs: 5, reason: "rate limited" });
    expect(retry).toBeInstanceOf(Error);
    expect(String(retry)).toBe("Retry: rate limited");
    expect(retry.stack).toMatch(/^Retry: rate limited\n {4}at /);
    expect(retry.delayMs).toBe(5);
    expect(String(new Retry())).toBe("Retry");
    expect(new Retry().delayMs).toBeUndefined();

    const reject = new Reject("no such address", { category: "address" });
    expect(String(reject)).toBe("Reject: no such address");
    expect(reject.category).toBe("address");
    expect(new Reject("no").category).toBeUndefined();
  });

  test("ask for nothing that was not said", () => {
    expect(requestedDelay(new Retry({ delayMs: 0 }))).toBe(0);
    expect(requestedDelay(new Retry())).toBeUndefined();
    expect(requestedDelay(new Error("no Retry"))).toBeUndefined();
    expect(isReject(new Reject("no"))).toBe(true);
    expect(isReject(new Retry())).toBe(false);
  });

  test.each([null, undefined, "Retry", 5, Symbol("Retry"), () => {}, {}, new Proxy({}, { get: () => true })])(
    "are not confused with %s",
    (thrown) => {
      expect(requestedDelay(thrown)).toBeUndefined();
    },
  );

  test("survive a proxy that throws at everything", () => {
    expect(requestedDelay(hostile())).toBeUndefined();
    expect(isReject(hostile())).toBe(false);
  });

  test("survive what somebody made of them", () => {
    const odd = Object.defineProperty(new Retry(), "delayMs", { get: throwing(new Error("odd")) });
    expect(requestedDelay(odd)).toBeUndefined();
    const reject = Object.assign(new Reject("no"), { category: 5 });
    expect(namedCategory(reject as unknown as Reject)).toBeUndefined();
  });
});

describe("another copy of the package", () => {
  test("is understood by its brands alone", () => {
    const foreign = runInNewContext(`
      const brand = (object, name, value = true) => ({ ...object, [Symbol.for("localqueue." + name)]: value });
      ({
        retry: brand({ delayMs: 7 }, "Retry"),
        reject: brand({ category: "x" }, "Reject"),
        policy: brand({ maxAttempts: 2 }, "RetryPolicy", () => 5),
      })`);
    expect(requestedDelay(foreign.retry)).toBe(7);
    expect(isReject(foreign.reject)).toBe(true);
    expect(namedCategory(foreign.reject)).toBe("x");
    expect(isRetryPolicy(foreign.policy)).toBe(true);
    expect(delayAfter(foreign.policy, 1)).toBe(5);
  });
});
