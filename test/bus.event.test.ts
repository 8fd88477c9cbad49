import { InvalidEventError } from "localqueue";
import { describe, expect, test } from "vitest";
import { defineEvent } from "../dist/bus/definition.js";
import { writeEnvelope } from "../dist/bus/envelope.js";
import { checkEvent, emitted, isEvent } from "../dist/bus/event.js";
import { hostile } from "./support/hostile.ts";

const UserCreated = defineEvent<{ userId: string }>("user.created");
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const ID = "11111111-2222-3333-4444-55555555abcd";

describe("a definition", () => {
  test("knows its type, version, schema and identity", () => {
    expect({ ...UserCreated }).toMatchObject({ type: "user.created", version: 1, schema: "user.created@1" });
    expect(UserCreated.identity).toBeUndefined();
    const fields: ("userId" | "site")[] = ["userId", "site"];
    const Third = defineEvent<{ userId: string; site: string }>("user.created", undefined, {
      version: 3,
      identity: fields,
    });
    fields.pop();
    expect({ ...Third }).toMatchObject({ version: 3, schema: "user.created@3", identity: ["userId", "site"] });
    expect([Third, Third.identity].every(Object.isFrozen)).toBe(true);
  });

  test.each([
    [5, "Expected `type` to be a string of 1 to 200 characters without NUL or lone surrogates, got `5` (number)"],
    ["", "Expected `type` to be a string of 1 to 200 characters"],
    ["x".repeat(201), "Expected `type` to be a string of 1 to 200 characters"],
    ["a\0", "without NUL"],
    ["\uD800", "lone surrogates"],
    [" \t", "Expected `type` to be a name that is not blank"],
    ["user.*", "Expected `type` to be a name without `*`, which stands for all events"],
    ["*", "a name without `*`"],
  ])("has a type that can be stored and is no pattern, not %j", (type, message) => {
    expect(() => defineEvent(type as string)).toThrow(message);
  });

  test.each([
    [{ version: 0 }, RangeError, "Expected `version` to be an integer from 1"],
    [{ version: 1.5 }, RangeError, "`version`"],
    [{ version: "1" }, TypeError, "`version`"],
    [{ identity: "userId" }, TypeError, "Expected `identity` to be an array of the names of fields"],
    [{ identity: [] }, RangeError, "Expected `identity` to be an array of the names of fields"],
    [{ identity: ["a", "a"] }, RangeError, "each once"],
    [{ identity: [" "] }, RangeError, "Expected `identity` to be names that are not blank"],
    [{ identity: [5] }, TypeError, "`identity`"],
    [{ identities: ["a"] }, TypeError, "Unknown option `identities`; known: `version`, `identity`"],
  ])("refuses the options %j", (options, error, message) => {
    const define = () => defineEvent("user.created", undefined, options as object);
    expect(define).toThrow(error);
    expect(define).toThrow(message);
  });

  test.each([
    { version: 1 },
    5,
    null,
    () => {},
    { "~standard": { version: 2, validate() {} } },
    { "~standard": {} },
    hostile(),
  ])("has a schema that follows the standard, nothing else", (schema) => {
    expect(() => defineEvent("user.created", schema as never)).toThrow(
      /^Expected `schema` to be a Standard Schema, such/,
    );
  });
});

describe("an event", () => {
  test("without lineage is the root of its own", () => {
    const before = Date.now();
    const event = UserCreated({ userId: "7" });
    expect(event).toEqual({
      id: expect.stringMatching(UUID),
      type: "user.created",
      schema: "user.created@1",
      createdAt: expect.any(Date),
      correlationId: event.id,
      causationId: undefined,
      data: { userId: "7" },
    });
    expect(event.createdAt.getTime()).toBeGreaterThanOrEqual(before);
    expect(event.createdAt.getTime()).toBeLessThanOrEqual(Date.now());
    expect(UserCreated({ userId: "7" }).id).not.toBe(event.id);
    expect(Object.isFrozen(event)).toBe(true);
  });

  test("has the ids and the time that it is given", () => {
    const createdAt = new Date("2026-01-02T03:04:05.678Z");
    const [id, correlationId, causationId] = [crypto.randomUUID(), crypto.randomUUID(), crypto.randomUUID()];
    const event = UserCreated({ userId: "7" }, { id, correlationId, causationId, createdAt });
    expect(event).toMatchObject({ id, correlationId, causationId, createdAt });
    createdAt.setTime(0);
    expect(event.createdAt.getTime()).not.toBe(0);
  });

  test.each([ID.toUpperCase(), `{${ID}}`, `urn:uuid:${ID}`, `URN:UUID:{${ID.toUpperCase()}}`, ID.replaceAll("-", "")])(
    "may be given ids in any usual spelling: %s",
    (spelling) => {
      const event = UserCreated({ userId: "7" }, { id: spelling, correlationId: spelling, causationId: spelling });
      expect(event).toMatchObject({ id: ID, correlationId: ID, causationId: ID });
    },
  );

  test.each(["id", "correlationId", "causationId"])("refuses an %s that is no UUID, by its name", (name) => {
    for (const value of ["", "7", `${ID}0`, ID.slice(1), `{${ID}`, ID.replace("a", "g"), 5, null, {}, ["a"]]) {
      const create = () => UserCreated({ userId: "7" }, { [name]: value });
      expect(create).toThrow(InvalidEventError);
      expect(create).toThrow(`Expected \`${name}\` to be a UUID, got`);
    }
  });

  test("refuses unknown options, and times that nobody can write", () => {
    const create = (options: object) => () => UserCreated({ userId: "7" }, options);
    expect(create({ corelationId: ID })).toThrow("did you mean `correlationId`?");
    expect(create({ createdAt: "2026-01-02" })).toThrow("Expected `createdAt` to be a Date");
    expect(create({ createdAt: new Date(Number.NaN) })).toThrow(RangeError);
    expect(create({ createdAt: new Date(8e15) })).toThrow("a date in the years 1 to 9999");
    expect(create({ createdAt: new Date("-000001-01-01T00:00:00Z") })).toThrow(RangeError);
  });

  test("that another one led to shares its correlation, and names it as the cause", () => {
    const root = UserCreated({ userId: "7" });
    const child = UserCreated.from(root, { userId: "8" });
    const grandchild = UserCreated.from(child, { userId: "9" });
    expect(child).toMatchObject({ correlationId: root.id, causationId: root.id, data: { userId: "8" } });
    expect(grandchild).toMatchObject({ correlationId: root.id, causationId: child.id });
    expect(new Set([root.id, child.id, grandchild.id]).size).toBe(3);
  });

  test("comes from an event, nothing else, not even a copy of one", () => {
    const event = UserCreated({ userId: "7" });
    const mock = new Proxy({}, { get: () => () => {} });
    for (const parent of [
      undefined,
      null,
      "event",
      {},
      { ...event },
      structuredClone(event),
      UserCreated,
      mock,
      hostile(),
    ]) {
      expect(() => UserCreated.from(parent as never, { userId: "8" })).toThrow(TypeError);
      expect(() => UserCreated.from(parent as never, { userId: "8" })).toThrow(
        "Expected `parent` to be an event made by",
      );
      expect(isEvent(parent)).toBe(false);
    }
    expect(checkEvent(event, "event")).toBe(event);
  });

  test("that a handler emits gets the lineage that its author left open, in what is stored only", () => {
    const parent = UserCreated.from(UserCreated({ userId: "1" }), { userId: "2" });
    const open = UserCreated({ userId: "3" });
    expect(emitted(open, parent)).toEqual({ ...open, correlationId: parent.correlationId, causationId: parent.id });
    expect(open).toMatchObject({ correlationId: open.id, causationId: undefined });
    expect(JSON.parse(writeEnvelope(emitted(open, parent)))).toMatchObject({
      event_id: open.id,
      correlation_id: parent.correlationId,
      causation_id: parent.id,
      payload: { userId: "3" },
    });

    const related = UserCreated({ userId: "4" }, { correlationId: ID });
    expect(emitted(related, parent)).toMatchObject({ correlationId: ID, causationId: parent.id });
    const caused = UserCreated({ userId: "5" }, { causationId: ID });
    expect(emitted(caused, parent)).toMatchObject({ correlationId: parent.correlationId, causationId: ID });
    const other = UserCreated.from(open, { userId: "6" });
    expect(emitted(other, parent)).toBe(other);
    const twice = emitted(open, parent);
    expect(emitted(twice, other)).toBe(twice);
  });
});

describe("the data of an event", () => {
  const Any = defineEvent<object>("any");

  test("is taken when the event is made: later changes change nothing", () => {
    const data = { list: [1], at: new Date(0) };
    const event = Any(data);
    data.list.push(2);
    data.at.setTime(1);
    expect(event.data).toEqual({ list: [1], at: "1970-01-01T00:00:00.000Z" });
    (event.data as typeof data).list.push(3);
    expect(JSON.parse(writeEnvelope(event)).payload).toEqual({ list: [1], at: "1970-01-01T00:00:00.000Z" });
  });

  test("may be anything that JSON has as an object", () => {
    class Point {
      x = 1;
    }
    expect(Any(new Point()).data).toEqual({ x: 1 });
    expect(Any({ toJSON: () => ({ y: 2 }) }).data).toEqual({ y: 2 });
    expect(Any({}).data).toEqual({});
    expect(Any(JSON.parse('{ "__proto__": 1 }')).data).toEqual(JSON.parse('{ "__proto__": 1 }'));
  });

  test.each([null, [], [{}], "text", 5, true, new Date(0)])("is an object, not %j", (data) => {
    expect(() => Any(data as object)).toThrow(InvalidEventError);
    expect(() => Any(data as object)).toThrow("Expected the data of `any@1` to be an object");
  });

  const circular: Record<string, unknown> = {};
  circular["self"] = { circular };

  test.each([
    [undefined, "`$` is undefined"],
    [{ count: 5n }, "`$.count` is a BigInt"],
    [{ a: { b: [Number.NaN] } }, "`$.a.b[0]` is NaN"],
    [circular, "`$.self.circular` refers back to `$`"],
    [new Map(), "`$` is a Map"],
    [{ at: new Date(Number.NaN) }, "`$.at` is an invalid date"],
    [
      {
        get broken() {
          throw new Error("no");
        },
      },
      "`$.broken` cannot be read",
    ],
    [hostile(), "Cannot encode the payload as JSON"],
  ])("is refused where JSON would change it: %#", (data, message) => {
    expect(() => Any(data as object)).toThrow(InvalidEventError);
    expect(() => Any(data as object)).toThrow(message);
    expect(() => Any(data as object)).toThrow("Invalid data of `any@1`");
  });
});
