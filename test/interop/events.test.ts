import fc from "fast-check";
import { expect, test } from "vitest";
import { identityOf } from "../../dist/bus/event.js";
import { BusTopology, type Event } from "../../dist/bus/index.js";
import { IDLE, openBus, storedIn } from "../support/bus.ts";
import { faultsOf, select } from "../support/inspect.ts";
import { tempDirectory } from "../support/temp.ts";
import { Anything, Invoice, Measured, OrderPaid, Reading, Task } from "./support/events.ts";
import { PythonBus } from "./support/python-bus.ts";

const routes = {
  audit: ["*"],
  email: ["order.paid"],
  math: ["measured", "anything"],
  books: ["invoice"],
  readings: ["reading"],
  work: ["task"],
};
const topology = new BusTopology({
  audit: ["*"],
  email: [OrderPaid],
  math: [Measured, Anything],
  books: [Invoice],
  readings: [Reading],
  work: [Task],
});

function open(directory = tempDirectory()) {
  return { directory, bus: openBus({ location: directory, topology }), python: new PythonBus(directory, { routes }) };
}

test("an event that Python dispatched is handled here, as it was", async () => {
  const { bus, python, directory } = open();
  const lineage = {
    event_id: "11111111-2222-3333-4444-555555555555",
    correlation_id: "21111111-2222-3333-4444-555555555555",
    causation_id: "31111111-2222-3333-4444-555555555555",
    event_created_at: "2026-01-02T03:04:05.678901+00:00",
  };
  const receipt = await python.dispatch("order.paid", { order_id: "José 太郎 😀", cents: 4200 }, lineage);
  expect(receipt).toMatchObject({ subscriptions: ["audit", "email"], inserted: [true, true] });
  const got: Event[] = [];
  bus.subscription("email").handler(OrderPaid, (event) => void got.push(event));
  await bus.run(IDLE);
  expect(got).toEqual([
    {
      id: lineage.event_id,
      type: "order.paid",
      schema: "order.paid@1",
      createdAt: new Date("2026-01-02T03:04:05.678Z"),
      correlationId: lineage.correlation_id,
      causationId: lineage.causation_id,
      data: { order_id: "José 太郎 😀", cents: 4200 },
    },
  ]);
  expect(await bus.subscription("email").stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  expect(faultsOf(directory)).toEqual([]);
});

test("an event that was dispatched here is handled by Python, as it was", async () => {
  const { bus, python, directory } = open();
  const event = OrderPaid(
    { order_id: "José 太郎 😀", cents: 4200 },
    { causationId: "31111111-2222-3333-4444-555555555555", createdAt: new Date("2026-01-02T03:04:05.678Z") },
  );
  await bus.dispatch(event);
  expect(await python.run(["email"])).toEqual([
    {
      subscription: "email",
      type: "order.paid",
      data: { order_id: "José 太郎 😀", cents: 4200 },
      attempt: 1,
      event_id: event.id,
      correlation_id: event.id,
      causation_id: event.causationId,
      event_created_at: "2026-01-02T03:04:05.678000+00:00",
    },
  ]);
  expect(await bus.subscription("email").stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  expect(faultsOf(directory)).toEqual([]);
});

test("keys and texts of any alphabet arrive as they are, in both directions", async () => {
  const { bus, python } = open();
  const data = { tenant: "ü", key: 1, "太郎 😀": { '\u0000\u2028"\\/': ["\u{10ffff}", "e\u0301", ""] } };
  await python.dispatch("anything", data);
  const got: unknown[] = [];
  bus
    .subscription("math")
    .handler(Measured, () => {})
    .handler(Anything, (event) => void got.push(event.data));
  await bus.run(IDLE);
  expect(got).toEqual([data]);
  await bus.dispatch(Anything({ ...data, key: 2 }));
  expect((await python.run(["math"])).map((handled) => handled.data)).toEqual([{ ...data, key: 2 }]);
});

test("both languages store the same envelope", async () => {
  const { python } = open();
  const lineage = {
    event_id: "11111111-2222-3333-4444-555555555555",
    correlation_id: "21111111-2222-3333-4444-555555555555",
  };
  const data = { order_id: "A-7", cents: 4200 };
  for (const ms of ["678", "000"]) {
    const createdAt = new Date(`2026-01-02T03:04:05.${ms}Z`);
    const options = { id: lineage.event_id, correlationId: lineage.correlation_id, createdAt };
    const theirs = await python.call<string>("envelope", "order.paid", data, {
      ...lineage,
      event_created_at: createdAt.toISOString(),
    });
    const other = tempDirectory();
    await openBus({ location: other, topology }).dispatch(OrderPaid(data, options));
    const [ours] = storedIn(other, "email");
    expect(JSON.stringify(ours)).toBe(JSON.stringify(JSON.parse(theirs)));
  }
});

test("an event dispatched by both under one id is one delivery", async () => {
  const { bus, python, directory } = open();
  const event = Task({ n: 1 });
  const { messageIds } = await bus.dispatch(event);
  const again = await python.dispatch("task", { n: 1 }, { event_id: event.id });
  expect(again).toMatchObject({ message_ids: messageIds, inserted: [false, false] });
  const first = await python.dispatch("task", { n: 2 });
  const second = await bus.dispatch(Task({ n: 2 }, { id: first.event_id }));
  expect(second).toMatchObject({ messageIds: first.message_ids, inserted: [false, false] });
  expect(storedIn(directory, "work").length).toBe(2);
});

test("the same business event dispatched by both is one delivery, and another one under its identity a conflict", async () => {
  const { bus, python, directory } = open();
  const [here, there] = [
    { order_id: "A-7", cents: 4200 },
    { order_id: "B-8", cents: 4200 },
  ];
  const { messageIds } = await bus.dispatch(OrderPaid(here));
  expect(await python.dispatch("order.paid", here)).toMatchObject({
    message_ids: messageIds,
    inserted: [false, false],
  });
  const { message_ids } = await python.dispatch("order.paid", there);
  expect(await bus.dispatch(OrderPaid(there))).toMatchObject({ messageIds: message_ids, inserted: [false, false] });

  await expect(python.dispatch("order.paid", { ...here, cents: 1 })).rejects.toMatchObject({
    name: "DeduplicationConflict",
  });
  await expect(bus.dispatch(OrderPaid({ ...there, cents: 1 }))).rejects.toMatchObject({
    code: "DEDUPLICATION_CONFLICT",
  });
  // They are known even when they are done, and whoever did them.
  expect((await python.run(["email"])).length).toBe(2);
  expect(await bus.dispatch(OrderPaid(there))).toMatchObject({ inserted: [false, false] });
  expect(await python.dispatch("order.paid", here)).toMatchObject({ inserted: [false, false] });
  expect(storedIn(directory, "email").length).toBe(2);
  expect(faultsOf(directory)).toEqual([]);
});

/** Data of which Python thinks as we do: see the next tests for the numbers that are missing. */
const { json } = fc.letrec((tie) => ({
  json: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom(null, true, false),
    fc.maxSafeInteger(),
    fc
      .double({ noDefaultInfinity: true, noNaN: true })
      .filter((value) => !Number.isInteger(value) || Object.is(value, -0) || Math.abs(value) >= 1e21),
    fc.string({ unit: "binary" }),
    fc.array(tie("json"), { maxLength: 4 }),
    fc.dictionary(fc.string({ unit: "binary", minLength: 1 }), tie("json"), { maxKeys: 4 }),
  ),
}));
const identifying = json.filter((value) => value !== null && !(typeof value === "string" && value.trim() === ""));

test("whatever the data is, both languages recognise an event by the same identity", async () => {
  const { python } = open();
  const property = fc.asyncProperty(identifying, identifying, json, async (tenant, key, value) => {
    const data = { tenant, key, value };
    const event = Anything(data);
    expect(identityOf(event)).toEqual(await python.call("identity", "anything", JSON.parse(JSON.stringify(data))));
  });
  await fc.assert(property, { numRuns: 300 });
});

test("a float that is a whole number is an integer here: the events of both languages are not the same then", async () => {
  const { bus, python, directory } = open();
  const half = { name: "half", count: 2, value: 2.5 };
  await python.dispatch("measured", half);
  expect(await bus.dispatch(Measured(half))).toMatchObject({ inserted: [false, false] });

  const whole = { name: "whole", count: 2, value: 2 };
  await python.dispatch("measured", whole);
  await expect(bus.dispatch(Measured(whole))).rejects.toMatchObject({ code: "DEDUPLICATION_CONFLICT" });
  await bus.dispatch(Measured({ ...whole, name: "other" }));
  const theirs = python.dispatch("measured", { ...whole, name: "other" });
  await expect(theirs).rejects.toMatchObject({ name: "DeduplicationConflict" });

  // Where such a float belongs to the identity, they are two events.
  await python.dispatchText("anything", '{"tenant": "t", "key": 2.0}');
  expect(await bus.dispatch(Anything({ tenant: "t", key: 2 }))).toMatchObject({ inserted: [true, true] });
  expect(storedIn(directory, "math").length).toBe(5);

  const got: unknown[] = [];
  bus.subscription("math").handler("*", ({ data }) => void got.push(data));
  await bus.run(IDLE);
  expect(got.slice(0, 2)).toEqual([half, whole]);
});

test("an integer beyond 2^53 arrives here rounded, and is handed on as it was", async () => {
  const { bus, python, directory } = open();
  await python.dispatchText("anything", '{"tenant": "t", "key": "k", "big": 9007199254740993}');
  const others = openBus({ location: directory, name: "others", topology: new BusTopology({ copies: ["*"] }) });
  const got: unknown[] = [];
  bus
    .subscription("math")
    .handler(Measured, () => {})
    .handler(Anything, async (event) => {
      got.push(event.data["big"]);
      await others.dispatch(event);
    });
  await bus.run(IDLE);
  expect(got).toEqual([2 ** 53]);
  const [copy] = select(directory, "SELECT CAST(payload AS TEXT) AS text FROM messages WHERE queue LIKE '%copies'");
  expect(copy?.["text"]).toContain('"big": 9007199254740993');
});

test("decimals, dates, durations and UUIDs of Python are texts here, and the same events", async () => {
  const { bus, python } = open();
  const invoice = {
    number: "7.10",
    total: "1234567890123456789.10",
    due: "2026-02-03",
    sent_at: "2026-01-02T03:04:05.678901Z",
    within: "PT1M30.000005S",
    customer: "11111111-2222-3333-4444-555555555555",
  };
  await python.dispatch("invoice", invoice);
  const got: unknown[] = [];
  bus.subscription("books").handler(Invoice, ({ data }) => void got.push(data));
  await bus.run(IDLE);
  expect(got).toEqual([invoice]);
  expect(await bus.dispatch(Invoice(invoice))).toMatchObject({ inserted: [false, false] });
  await bus.dispatch(Invoice({ ...invoice, number: "8" }));
  expect((await python.run(["books"])).map(({ data }) => data)).toEqual([{ ...invoice, number: "8" }]);
});

test("NaN in an event of Python is no JSON: the event is a dead letter here, and Python can take it back", async () => {
  const { bus, python } = open();
  await python.dispatchText("reading", '{"value": NaN}');
  bus.on("event:failed", () => {});
  const readings = bus.subscription("readings").handler(Reading, () => {});
  await bus.run(IDLE);
  const [letter] = await readings.listFailed();
  expect(letter).toMatchObject({ reason: "invalid_envelope", decoded: false, attempts: 1 });
  await python.retryFailed("readings", letter?.id ?? 0);
  expect((await python.run(["readings"])).length).toBe(1);
  expect(await readings.stats()).toMatchObject({ acked: 1, failed: 0 });
});

test("both languages take the same texts for blank, which identify nothing", async () => {
  const { python } = open();
  const refused = { here: [] as string[], there: [] as string[] };
  for (const text of " \t\n\v\f\r\u001b\u001c\u001d\u001e\u001f\u0085\u00a0\u1680\u180e\u2000\u200a\u200b\u2028\u3000\ufeff") {
    const data = { tenant: text, key: 1 };
    try {
      Anything(data);
    } catch {
      refused.here.push(text);
    }
    await python.call("identity", "anything", data).catch(() => refused.there.push(text));
  }
  expect(refused.here).toEqual(refused.there);
});
