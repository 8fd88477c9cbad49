import { EnqueueItem, Reject, Retry, RetryPolicy, SimpleQueue, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { finite, integer, option, optional, optionsReader } from "../dist/options.js";

/** Constructors do no I/O, so the directory does not have to exist. */
function queue(options?: object): SimpleQueue {
  return new SimpleQueue("/nonexistent/localqueue", options);
}

function refusal(act: () => unknown): Error {
  try {
    act();
  } catch (error) {
    return error as Error;
  }
  throw new Error("It was accepted.");
}

describe("a set of options", () => {
  const read = optionsReader({ size: option(integer(1, 9), 5), label: optional((value) => String(value)) });

  test("is complete and frozen, with the defaults where nothing was given", () => {
    expect(read(undefined)).toEqual({ size: 5, label: undefined });
    expect(read({ size: 7 })).toEqual({ size: 7, label: undefined });
    expect(Object.isFrozen(read(undefined))).toBe(true);
    expect(Object.isFrozen(read({ size: 7 }))).toBe(true);
  });

  test("treats an explicit undefined as absent", () => {
    expect(read({ size: undefined, label: undefined })).toEqual({ size: 5, label: undefined });
  });

  test("keeps falsy values instead of falling back to the default", () => {
    const readZero = optionsReader({ delay: option(integer(0, 9), 5) });
    expect(readZero({ delay: 0 })).toEqual({ delay: 0 });
  });

  test("may have any prototype, and getters", () => {
    class Config {
      get size(): number {
        return 3;
      }
    }
    expect(read(new Config())).toMatchObject({ size: 3 });
    expect(read(Object.assign(Object.create(null), { size: 2 }))).toMatchObject({ size: 2 });
  });

  test.each([
    null,
    5,
    "size",
    true,
    5n,
    Symbol("size"),
    [],
    () => {},
    new Map(),
    new Date(),
    new AbortController().signal,
  ])("is an object, not %s", (options) => {
    expect(refusal(() => read(options))).toBeInstanceOf(TypeError);
    expect(refusal(() => read(options)).message).toMatch(/^Expected `options` to be an object, got /);
  });

  test("names an unknown option, and the known one that is meant", () => {
    expect(refusal(() => read({ sise: 1 }))).toEqual(new TypeError("Unknown option `sise`; did you mean `size`?"));
    expect(refusal(() => read({ Size: 1 }))).toEqual(new TypeError("Unknown option `Size`; did you mean `size`?"));
    expect(refusal(() => read({ colour: 1 }))).toEqual(
      new TypeError("Unknown option `colour`; known: `size`, `label`"),
    );
  });

  test("does not mistake a property of all objects for an option", () => {
    expect(refusal(() => read({ toString: 1 })).message).toMatch(/^Unknown option `toString`/);
    expect(refusal(() => read(JSON.parse('{"__proto__": 1}'))).message).toMatch(/^Unknown option `__proto__`/);
  });
});

describe("a number", () => {
  const check = integer(10, 20);

  test("of the wrong type is a TypeError that shows what was given", () => {
    for (const [value, shown] of [
      ["12", '`"12"` (string)'],
      [12n, "`12` (bigint)"],
      [true, "`true` (boolean)"],
      [null, "`null`"],
      [{}, "`Object` (object)"],
      [[12], "`Array` (object)"],
      [() => 12, "a function"],
      [Symbol("12"), "`Symbol(12)` (symbol)"],
    ] as const) {
      expect(refusal(() => check(value, "size"))).toEqual(
        new TypeError(`Expected \`size\` to be an integer from 10 to 20, got ${shown}`),
      );
    }
  });

  test.each([9, 21, 10.5, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    "out of range is a RangeError: %s",
    (value) => {
      expect(refusal(() => check(value, "size"))).toEqual(
        new RangeError(`Expected \`size\` to be an integer from 10 to 20, got \`${value}\` (number)`),
      );
    },
  );

  test("never is -0", () => {
    expect(Object.is(integer(0, 1)(-0, "n"), 0)).toBe(true);
    expect(Object.is(finite(0)(-0, "n"), 0)).toBe(true);
  });

  test("is shown in full, a long text is cut", () => {
    expect(refusal(() => check("x".repeat(1_000), "size")).message.length).toBeLessThan(150);
  });
});

describe("a queue", () => {
  test("is made with no options at all", () => {
    expect(() => queue()).not.toThrow();
    expect(() => queue(undefined)).not.toThrow();
    expect(() => queue({})).not.toThrow();
  });

  test.each(["x", "x".repeat(200), "🐘".repeat(200), "with spaces / and.dots", "__bus__"])(
    "may be named %s",
    (name) => {
      expect(() => queue({ name })).not.toThrow();
    },
  );

  test.each(["", "x".repeat(201), "🐘".repeat(201), "a\0b", "\ud800", "x\udc00", "__bus__:", "__bus__:app:email"])(
    "may not be named %j",
    (name) => {
      expect(refusal(() => queue({ name }))).toBeInstanceOf(RangeError);
      expect(refusal(() => queue({ name })).message).toMatch(/^Expected `name` to be /);
    },
  );

  test.each([10, 60_000, 86_400_000])("may have a lease of %s ms", (leaseMs) => {
    expect(() => queue({ leaseMs })).not.toThrow();
  });

  test("says what a lease must be", () => {
    expect(refusal(() => queue({ leaseMs: 0 }))).toEqual(
      new RangeError("Expected `leaseMs` to be an integer from 10 to 86400000, got `0` (number)"),
    );
  });

  test.each([
    ["name", 5, TypeError],
    ["leaseMs", "60000", TypeError],
    ["leaseMs", 9, RangeError],
    ["leaseMs", -1, RangeError],
    ["leaseMs", 86_400_001, RangeError],
    ["leaseMs", 100.5, RangeError],
    ["leaseMs", Number.NaN, RangeError],
    ["maxRetries", -1, RangeError],
    ["maxRetries", 1.5, RangeError],
    ["maxRetries", true, TypeError],
    ["maxRetries", Number.POSITIVE_INFINITY, RangeError],
    ["fsync", 1, TypeError],
    ["fsync", "full", TypeError],
    ["serializer", null, TypeError],
    ["serializer", "json", TypeError],
    ["serializer", { encode: () => new Uint8Array() }, TypeError],
  ])("refuses %s: %s", (name, value, kind) => {
    const error = refusal(() => queue({ [name]: value }));
    expect(error).toBeInstanceOf(kind);
    expect(error.message).toContain(`\`${name}\``);
  });

  test("refuses options of later versions and of other packages", () => {
    expect(refusal(() => queue({ lease_ms: 1_000 }))).toEqual(
      new TypeError("Unknown option `lease_ms`; did you mean `leaseMs`?"),
    );
    expect(refusal(() => queue({ maxPendingJobs: 1 })).message).toMatch(/^Unknown option `maxPendingJobs`/);
    expect(refusal(() => queue({ retention: {} })).message).toMatch(/^Unknown option `retention`/);
  });
});

describe("an item of a batch", () => {
  test.each(["x", "x".repeat(512), "ä".repeat(256)])("may have the jobId %s", (jobId) => {
    expect(new EnqueueItem(1, { jobId }).jobId).toBe(jobId);
  });

  test.each(["", "x".repeat(513), "ä".repeat(257), "a\0b", "\udfff"])("may not have the jobId %j", (jobId) => {
    expect(refusal(() => new EnqueueItem(1, { jobId }))).toBeInstanceOf(RangeError);
  });

  test.each([
    ["jobId", 7, TypeError],
    ["delayMs", -1, RangeError],
    ["delayMs", 0.5, RangeError],
    ["delayMs", "0", TypeError],
    ["delayMs", 8_000_000_000_000_001, RangeError],
    ["maxRetries", -1, RangeError],
    ["timeoutMs", 0, TypeError],
  ])("refuses %s: %s", (name, value, kind) => {
    const error = refusal(() => new EnqueueItem(1, { [name]: value }));
    expect(error).toBeInstanceOf(kind);
    expect(error.message).toContain(`\`${name}\``);
  });

  test("may be delayed for longer than anybody will wait, and the due time is still a date", () => {
    const { delayMs } = new EnqueueItem(1, { delayMs: 8_000_000_000_000_000 });
    expect(new Date(Date.now() + delayMs).getTime()).toBeLessThan(2 ** 53);
  });
});

describe("a worker", () => {
  const handler = (): void => {};
  const worker = (options?: object, leaseMs = 900): Worker => new Worker(queue({ leaseMs }), handler, options);

  test("needs a queue and a handler", () => {
    expect(refusal(() => new Worker({} as SimpleQueue, handler))).toEqual(
      new TypeError("Expected `queue` to be a SimpleQueue, got `Object` (object)"),
    );
    expect(refusal(() => new Worker(queue(), undefined as never))).toEqual(
      new TypeError("Expected `handler` to be a function, got `undefined`"),
    );
  });

  test("accepts every option", () => {
    const retry = (attempt: number): number => attempt * 100;
    const permanentErrors = [TypeError, class extends Error {}];
    const options = { concurrency: 4, heartbeatMs: 899, permanentErrors, retry, timeoutMs: 1, graceMs: 0 };
    expect(() => worker(options)).not.toThrow();
    expect(() => worker({ heartbeatMs: false, retry: RetryPolicy.fixed(5) })).not.toThrow();
  });

  test.each([900, 901, 86_400_000])(
    "has a heartbeat that is shorter than the lease, not %s ms of 900",
    (heartbeatMs) => {
      expect(refusal(() => worker({ heartbeatMs }))).toEqual(
        new RangeError(
          `Expected \`heartbeatMs\` to be shorter than the lease of 900 ms, got \`${heartbeatMs}\` (number)`,
        ),
      );
    },
  );

  test("has a heartbeat by default, however short the lease is", () => {
    expect(() => worker({}, 10)).not.toThrow();
  });

  test.each([
    ["concurrency", 0, RangeError],
    ["concurrency", 10_001, RangeError],
    ["concurrency", 1.5, RangeError],
    ["concurrency", "4", TypeError],
    ["heartbeatMs", 0, RangeError],
    ["heartbeatMs", -1, RangeError],
    ["heartbeatMs", true, TypeError],
    ["permanentErrors", TypeError, TypeError],
    ["permanentErrors", ["TypeError"], TypeError],
    ["permanentErrors", [() => true], TypeError],
    ["retry", 5, TypeError],
    ["retry", null, TypeError],
    ["retry", { maxAttempts: 3 }, TypeError],
    ["timeoutMs", 0, RangeError],
    ["timeoutMs", 2_147_483_648, RangeError],
    ["graceMs", -1, RangeError],
    ["graceMs", null, TypeError],
    ["pollInterval", 1, TypeError],
    ["leaseReclaimInterval", 1, TypeError],
  ])("refuses %s: %s", (name, value, kind) => {
    const error = refusal(() => worker({ [name]: value }));
    expect(error).toBeInstanceOf(kind);
    expect(error.message).toContain(`\`${name}`);
  });

  test("knows its events", () => {
    expect(refusal(() => worker().on("job:done" as never, handler))).toBeInstanceOf(TypeError);
    expect(refusal(() => worker().on("job:acked", "handler" as never))).toEqual(
      new TypeError('Expected `listener` to be a function, got `"handler"` (string)'),
    );
  });
});

describe("a method that returns a promise", () => {
  const misuses: [name: string, misuse: (queue: SimpleQueue) => Promise<unknown>, kind: ErrorConstructor][] = [
    ["put with unknown options", (q) => q.put(1, { timeout: 1 } as object), TypeError],
    ["put with a string for options", (q) => q.put(1, "job-1" as never), TypeError],
    ["put with a negative time-out", (q) => q.put(1, { timeoutMs: -1 }), RangeError],
    ["put with an endless time-out", (q) => q.put(1, { timeoutMs: Number.POSITIVE_INFINITY }), RangeError],
    ["put with a bad signal", (q) => q.put(1, { signal: {} as AbortSignal }), TypeError],
    ["put of an EnqueueItem", (q) => q.put(new EnqueueItem(1)), TypeError],
    ["putMany of a string", (q) => q.putMany("abc"), TypeError],
    ["putMany of bytes", (q) => q.putMany(new Uint8Array(3)), TypeError],
    ["putMany of nothing", (q) => q.putMany(undefined as never), TypeError],
    ["get with unknown options", (q) => q.get({ block: true } as object), TypeError],
    ["getMany without a limit", (q) => q.getMany(undefined as never), TypeError],
    ["getMany of none", (q) => q.getMany(0), RangeError],
    ["getMany of too many", (q) => q.getMany(10_001), RangeError],
    ["ack of nothing", (q) => q.ack(undefined as never), TypeError],
    ["ack of an id", (q) => q.ack(5 as never), TypeError],
    ["ack without a receipt", (q) => q.ack({ id: 5 } as never), TypeError],
    ["ack with an empty receipt", (q) => q.ack({ id: 5, receipt: "" }), RangeError],
    ["ack with a strange id", (q) => q.ack({ id: 0.5, receipt: "r" }), RangeError],
    ["nack with a negative delay", (q) => q.nack({ id: 5, receipt: "r" }, { delayMs: -1 }), RangeError],
    ["nack with too long a delay", (q) => q.nack({ id: 5, receipt: "r" }, { delayMs: 2 ** 53 }), RangeError],
    ["fail with an empty category", (q) => q.fail({ id: 5, receipt: "r" }, { category: "" }), RangeError],
    ["extendLease without a duration", (q) => q.extendLease({ id: 5, receipt: "r" }, undefined as never), TypeError],
    ["extendLease by 0", (q) => q.extendLease({ id: 5, receipt: "r" }, 0), RangeError],
    ["extendLease by a negative duration", (q) => q.extendLease({ id: 5, receipt: "r" }, -1), RangeError],
    ["find of nothing", (q) => q.find(undefined as never), TypeError],
    ["find of everything", (q) => q.find({}), TypeError],
    ["find of an id and a jobId", (q) => q.find({ id: 1, jobId: "job" }), TypeError],
    ["find of a strange id", (q) => q.find({ id: 0.5 }), RangeError],
    ["find of an id in words", (q) => q.find({ id: "1" as never }), TypeError],
    ["find of an empty jobId", (q) => q.find({ jobId: "" }), RangeError],
    ["list without a state", (q) => q.list({} as never), TypeError],
    ["list of a state that there is not", (q) => q.list({ state: "done" as never }), RangeError],
    ["list of too many", (q) => q.list({ state: "ready", limit: 10_001 }), RangeError],
    ["list of fewer than none", (q) => q.list({ state: "ready", limit: -1 }), RangeError],
    ["list after an id in words", (q) => q.list({ state: "ready", afterId: "1" as never }), TypeError],
    ["listFailed with a negative offset", (q) => q.listFailed({ offset: -1 }), RangeError],
    ["listFailed after half an id", (q) => q.listFailed({ afterId: 0.5 }), RangeError],
    ["listFailed for no reason that there is", (q) => q.listFailed({ reason: "bad" as never }), RangeError],
    ["listFailed of a state", (q) => q.listFailed({ state: "failed" } as never), TypeError],
    ["run with a bad signal", (q) => new Worker(q, () => {}).run({ signal: true } as never), TypeError],
  ];

  test.each(misuses)("rejects instead of throwing: %s", async (_, misuse, kind) => {
    const promise = misuse(queue());
    await expect(promise).rejects.toThrow(kind);
  });

  test("accepts an AbortSignal of any make", async () => {
    const signal = { aborted: true, reason: "enough", addEventListener: () => {}, removeEventListener: () => {} };
    await expect(queue().get({ signal: signal as never })).rejects.toBe("enough");
  });
});

test("an iteration over jobs with a misused option throws at once", () => {
  expect(refusal(() => queue().jobs({ limit: 1 } as object))).toBeInstanceOf(TypeError);
});

test("retry policies, Retry and Reject check their options, too", () => {
  expect(refusal(() => RetryPolicy.exponential({ initialMs: 0 }))).toBeInstanceOf(RangeError);
  expect(refusal(() => RetryPolicy.exponential({ factor: 0.5 }))).toBeInstanceOf(RangeError);
  expect(refusal(() => RetryPolicy.exponential({ maxMs: 1_000 }))).toEqual(
    new RangeError("Expected `maxMs` to be at least `initialMs`, which is 2000, got `1000` (number)"),
  );
  expect(refusal(() => RetryPolicy.exponential({ jitter: 1 } as object))).toBeInstanceOf(TypeError);
  expect(refusal(() => RetryPolicy.exponential({ maxAttempts: 0 }))).toBeInstanceOf(RangeError);
  expect(refusal(() => RetryPolicy.fixed("5" as never))).toEqual(
    new TypeError('Expected `ms` to be an integer from 0 to 8000000000000000, got `"5"` (string)'),
  );
  expect(refusal(() => RetryPolicy.immediate({ attempts: 3 } as object))).toBeInstanceOf(TypeError);
  expect(refusal(() => new Retry({ delayMs: -1 }))).toBeInstanceOf(RangeError);
  expect(refusal(() => new Retry({ reason: 5 } as object))).toBeInstanceOf(TypeError);
  expect(refusal(() => new Reject(undefined as never))).toBeInstanceOf(TypeError);
  expect(refusal(() => new Reject("no", { category: "" }))).toBeInstanceOf(RangeError);
});
