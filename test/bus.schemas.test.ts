import { type } from "arktype";
import { InvalidEventError } from "localqueue";
import { defineEvent, type Event, type EventDefinition, type StandardSchema } from "localqueue/bus";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { EnvelopeError, readEnvelope, restore, writeEnvelope } from "../dist/bus/envelope.js";
import { emitted, identityOf, ready } from "../dist/bus/event.js";
import { hostile, throwing } from "./support/hostile.ts";

interface Input {
  user: { name: string };
  at: string;
}
interface Output {
  user: { name: string };
  at: Date;
}

/** Compiles only if the two types are the same. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(..._: Same<A, B> extends true ? [] : ["these types differ"]): void => {};

const byZod = z.object({
  user: z.object({ name: z.string().min(2) }),
  at: z.iso.datetime().transform((text) => new Date(text)),
});
const byValibot = v.object({
  user: v.object({ name: v.pipe(v.string(), v.minLength(2)) }),
  at: v.pipe(
    v.string(),
    v.isoTimestamp(),
    v.transform((text) => new Date(text)),
  ),
});
const byArktype = type({
  user: { name: "string >= 2" },
  at: "string.date.iso.parse",
});

const Zod = defineEvent("user.created", byZod, { identity: ["user"] });
const Valibot = defineEvent("user.created", byValibot, { identity: ["user"] });
const Arktype = defineEvent("user.created", byArktype, { identity: ["user"] });

function thrownBy(act: () => unknown): unknown {
  try {
    act();
  } catch (error) {
    return error;
  }
  throw new Error("It was accepted.");
}

test("types flow from a schema to the data of its events", () => {
  same<typeof Zod, EventDefinition<Input, Output>>();
  same<typeof Valibot, EventDefinition<Input, Output>>();
  same<typeof Arktype, EventDefinition<Input, Output>>();
  const input: Input = { user: { name: "Jo" }, at: "2026-01-02T03:04:05.678Z" };
  same<ReturnType<typeof Zod>, Event<Output>>();
  const year: number = Arktype.from(Zod(input), input).data.at.getUTCFullYear();
  expect(year).toBe(2026);
  const mistakes = [
    // @ts-expect-error: neither the input nor the output
    () => Zod({ user: { name: "Jo" }, at: 5 }),
    // @ts-expect-error: a field is missing
    () => Valibot({ at: "2026-01-02T03:04:05.678Z" }),
    // @ts-expect-error: a field of another type
    () => Arktype({ user: { name: 5 }, at: "2026-01-02T03:04:05.678Z" }),
  ];
  for (const mistake of mistakes) expect(mistake).toThrow(InvalidEventError);
  // @ts-expect-error: a field that the input does not have
  defineEvent("user.created", byZod, { identity: ["name"] });
  // @ts-expect-error: the output in place of the input, which is the same as JSON
  expect(Zod({ ...input, at: new Date(input.at) }).data).toEqual(Zod(input).data);
});

describe.each<[string, EventDefinition<Input, Output>]>([
  ["zod", Zod],
  ["valibot", Valibot],
  ["arktype", Arktype],
])("a schema of %s", (_, UserCreated) => {
  const input: Input = { user: { name: "Jo" }, at: "2026-01-02T03:04:05.678Z" };

  test("makes the data of an event at once, while its input is stored", () => {
    const event = UserCreated(input);
    expect(event.data).toEqual({ user: { name: "Jo" }, at: new Date(input.at) });
    expect(ready(event)).toBeUndefined();
    expect(JSON.parse(writeEnvelope(event)).payload).toEqual(input);
  });

  test("makes the data of each delivery anew", () => {
    const event = UserCreated(input);
    const delivered = restore(readEnvelope(writeEnvelope(event)), UserCreated) as Event<Output>;
    expect(delivered).toEqual(event);
    expect(delivered.data.at).toBeInstanceOf(Date);
    delivered.data.at.setTime(0);
    expect(writeEnvelope(delivered)).toBe(writeEnvelope(event));
  });

  test("refuses data in its own words, at the place of the fault", () => {
    const create = () => UserCreated({ user: { name: "J" }, at: "yesterday" });
    expect(create).toThrow(InvalidEventError);
    expect(create).toThrow(/^The data, as JSON, does not fit the schema of `user.created@1`: [^;]+; [^;]+$/);
    expect(create).toThrow(/[:;] user\.name:? (?!user)/);
    expect(create).toThrow(/[:;] at:? (?!at)/);
  });

  test("refuses a delivery that does not fit", () => {
    const stored = writeEnvelope(defineEvent("user.created")({ user: { name: "J" }, at: input.at }));
    const deliver = () => restore(readEnvelope(stored), UserCreated);
    expect(deliver).toThrow(EnvelopeError);
    expect(deliver).toThrow(/does not fit the schema of `user.created@1`: user\.name:? /);
    expect(thrownBy(deliver)).toMatchObject({ reason: "invalid_payload", cause: expect.any(InvalidEventError) });
  });
});

test("a date that was given arrives at the schema as it will at each delivery: as a string", () => {
  const At = defineEvent("at", z.object({ at: z.date() }));
  expect(() => At({ at: new Date(0) })).toThrow("does not fit the schema of `at@1`: at: Invalid input: expected date");
  const Coerced = defineEvent("at", z.object({ at: z.coerce.date<Date>() }));
  expect(Coerced({ at: new Date(0) }).data.at).toEqual(new Date(0));
});

/** A kind of event whose schema asks somebody else, and the means to answer. */
function asynchronous(): {
  Registered: EventDefinition<{ name: string }, { name: number }>;
  answer(free: boolean): void;
} {
  const open: ((free: boolean) => void)[] = [];
  const isFree = (): Promise<boolean> => new Promise((resolve) => open.push(resolve));
  const name = z
    .string()
    .refine(isFree, "taken")
    .transform((text) => text.length);
  const answer = (free: boolean): void => {
    for (const resolve of open.splice(0)) resolve(free);
  };
  return { Registered: defineEvent("registered", z.object({ name })), answer };
}

describe("an asynchronous schema", () => {
  test("has the data of an event ready when the event may be stored, and as it was given before", async () => {
    const { Registered, answer } = asynchronous();
    const event = Registered({ name: "four" });
    expect(event.data).toEqual({ name: "four" });
    const readiness = ready(event);
    expect(readiness).toBeInstanceOf(Promise);
    answer(true);
    expect(await readiness).toBeUndefined();
    expect(event.data).toEqual({ name: 4 });
    expect(Object.isFrozen(event)).toBe(true);
    expect(JSON.parse(writeEnvelope(event)).payload).toEqual({ name: "four" });
  });

  test("rejects when the event is to be stored, and nobody has to care if it never is", async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown): void => void unhandled.push(error);
    process.on("unhandledRejection", note);
    try {
      const { Registered, answer } = asynchronous();
      const events = [Registered({ name: "four" }), Registered({ name: "five" })] as const;
      answer(false);
      await expect(ready(events[0])).rejects.toThrow(InvalidEventError);
      await expect(ready(emitted(events[0], events[1]))).rejects.toThrow("`registered@1`: name: taken");
      expect(events[0].data).toEqual({ name: "four" });
      await new Promise(setImmediate);
      expect(unhandled).toEqual([]);
    } finally {
      process.off("unhandledRejection", note);
    }
  });

  test("refuses at once what is no JSON object", () => {
    const { Registered } = asynchronous();
    expect(() => Registered([] as never)).toThrow(InvalidEventError);
    expect(() => Registered({ name: 5n } as never)).toThrow(InvalidEventError);
  });

  test("makes the data of each delivery anew", async () => {
    const { Registered, answer } = asynchronous();
    const stored = readEnvelope(writeEnvelope(defineEvent("registered")({ name: "four" })));
    const [delivery, again] = [restore(stored, Registered), restore(stored, Registered)];
    answer(true);
    expect((await delivery).data).toEqual({ name: 4 });
    await again;
    const refused = restore(stored, Registered);
    answer(false);
    await expect(refused).rejects.toMatchObject({ name: "EnvelopeError", reason: "invalid_payload" });
  });
});

describe("a schema by hand", () => {
  const schemaOf = (validate: (value: unknown) => unknown): StandardSchema =>
    ({ "~standard": { version: 1, vendor: "test", validate } }) as StandardSchema;
  const refusal = (validate: (value: unknown) => unknown): InvalidEventError => {
    const error = thrownBy(() => defineEvent("test", schemaOf(validate))({}));
    expect(error).toBeInstanceOf(InvalidEventError);
    return error as InvalidEventError;
  };

  test("may be a function", () => {
    const schema = Object.assign(
      () => {},
      schemaOf(() => ({ value: { a: 1 } })),
    );
    expect(defineEvent("test", schema)({}).data).toEqual({ a: 1 });
  });

  test("tells three issues, each with its place, and how many more there are", () => {
    const issues = [
      { message: "one", path: ["list", 0, { key: "a b" }] },
      { message: "two", path: [{ key: 1 }, Symbol("s")] },
      { message: "three" },
      { message: "four" },
      { message: "five", path: [] },
    ];
    expect(refusal(() => ({ issues })).message).toBe(
      'The data, as JSON, does not fit the schema of `test@1`: list[0]["a b"]: one; [1]["Symbol(s)"]: two; three; and 2 more',
    );
    expect(refusal(() => ({ issues: issues.slice(2, 3) })).message).toMatch(/: three$/);
  });

  test("that throws is no verdict: the error is the cause", async () => {
    const cause = new Error("no network");
    expect(refusal(throwing(cause))).toMatchObject({ message: "The schema of the event threw", cause });
    const later = defineEvent(
      "test",
      schemaOf(() => Promise.reject(cause)),
    )({});
    await expect(ready(later)).rejects.toMatchObject({ code: "INVALID_EVENT", cause });
    const stored = readEnvelope(writeEnvelope(defineEvent("test")({})));
    for (const validate of [throwing(cause), () => Promise.reject(cause)]) {
      const deliver = async () => restore(stored, defineEvent("test", schemaOf(validate)));
      await expect(deliver()).rejects.toMatchObject({ name: "InvalidEventError", cause });
    }
  });

  test.each([undefined, null, 5, hostile(), { issues: 5 }, { issues: [null] }, { issues: [hostile()] }])(
    "that breaks the rules is no verdict: %#",
    (result) => {
      expect(refusal(() => result).cause).toBeInstanceOf(Error);
    },
  );

  test("cannot change what is stored", () => {
    const Greedy = defineEvent(
      "test",
      schemaOf((value) => ({ value: Object.assign(value as object, { id: "changed" }) })),
      { identity: ["id"] as never[] },
    );
    const event = Greedy({ id: "7" });
    expect(event.data).toEqual({ id: "changed" });
    expect(JSON.parse(writeEnvelope(event)).payload).toEqual({ id: "7" });
    expect(identityOf(event)).toEqual(identityOf(defineEvent("test", undefined, { identity: ["id"] })({ id: "7" })));
  });
});
