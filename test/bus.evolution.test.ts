import { expect, test } from "vitest";
import { BusTopology, defineEvent, type EventDefinition, type StandardSchema } from "../dist/bus/index.js";
import { type BusTold, IDLE, listenToBus, openBus, schema } from "./support/bus.ts";
import { readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";

/** A schema by fields: each has a type, or a default. Others are dropped, or refused if it is strict. */
function fields<T>(known: Record<string, "string" | { readonly default: unknown }>, strict = false): StandardSchema<T> {
  return schema<T>((value) => {
    const given = value as Record<string, unknown>;
    const unknown = Object.keys(given).filter((name) => !(name in known));
    if (strict && unknown.length > 0) throw new Error(`unknown fields ${unknown}`);
    const read = Object.entries(known).map(([name, type]) => {
      if (type === "string" && typeof given[name] !== "string") throw new Error(`${name} must be a string`);
      return [name, given[name] ?? (type as { default: unknown }).default];
    });
    return Object.fromEntries(read) as T;
  });
}

const V1 = defineEvent<{ name: string }, { name: string }>("user", fields({ name: "string" }));
const V2 = defineEvent("user", fields<{ name: string; mail: string }>({ name: "string", mail: { default: "none" } }), {
  version: 2,
});

/** One process dispatches an event by its definition, and another one handles it by its own. */
async function pass<Input>(
  from: EventDefinition<Input, unknown>,
  data: Input,
  to: EventDefinition<never, unknown>,
): Promise<{ seen: unknown[]; told: BusTold; row: Record<string, unknown> }> {
  const location = tempLocation();
  const { messageIds } = await openBus({ location, topology: new BusTopology({ work: [from] }) }).dispatch(from(data));
  const bus = openBus({ location, topology: new BusTopology({ work: [to] }) });
  const told = listenToBus(bus);
  const seen: unknown[] = [];
  bus.subscription("work").handler(to, (event) => void seen.push([event.data, event.schema]));
  await bus.run(IDLE);
  return { seen, told, row: readRow(location, messageIds[0] as number) };
}

test("a process that knows version 2 handles an event of version 1: defaults fill what it lacks", async () => {
  const { seen } = await pass(V1, { name: "Ada" }, V2);
  expect(seen).toEqual([[{ name: "Ada", mail: "none" }, "user@1"]]);
});

test("a process that knows version 1 handles an event of version 2: its schema drops what it does not know", async () => {
  const { seen } = await pass(V2, { name: "Ada", mail: "a@b" }, V1);
  expect(seen).toEqual([[{ name: "Ada" }, "user@2"]]);
});

test("without a schema, a handler gets all fields that were given", async () => {
  const Loose = defineEvent("user");
  expect((await pass(V2, { name: "Ada", mail: "a@b" }, Loose)).seen).toEqual([
    [{ name: "Ada", mail: "a@b" }, "user@2"],
  ]);
});

test.each([
  ["lacks a field", { other: 1 }, defineEvent("user"), V1, "user@1", "name must be a string"],
  [
    "has a field too many for a strict schema",
    { name: "Ada", mail: "a@b" },
    defineEvent("user"),
    defineEvent("user", fields<{ name: string }>({ name: "string" }, true), { version: 3 }),
    "user@3",
    "unknown fields mail",
  ],
])("an event that %s becomes a dead letter at once", async (_, data, from, to, name, issue) => {
  const { seen, told, row } = await pass(from as EventDefinition<object>, data, to as EventDefinition<never, unknown>);
  expect(seen).toEqual([]);
  expect(row).toMatchObject({ status: 3, attempts: 1, failure_reason: "invalid_payload" });
  const lastError = `EnvelopeError: The data, as JSON, does not fit the schema of \`${name}\`: ${issue}`;
  expect(row["last_error"]).toBe(lastError);
  const message = `Delivery ${row["id"]} of subscription "work" became a dead letter (invalid_payload). ${lastError}`;
  expect(told).toEqual([["error", "work", expect.objectContaining({ code: "INVALID_EVENT", message })]]);
});

test("a dead letter that does not fit is handled once a process is deployed that knows better", async () => {
  const location = tempLocation();
  const From = defineEvent("user");
  await openBus({ location, topology: new BusTopology({ work: [From] }) }).dispatch(From({ mail: "a@b" }));
  const old = openBus({ location, topology: new BusTopology({ work: [V1] }) });
  listenToBus(old);
  old.subscription("work").handler(V1, () => {});
  await old.run(IDLE);
  const Better = defineEvent("user", fields<{ name: string }>({ name: { default: "anonymous" } }), { version: 2 });
  const bus = openBus({ location, topology: new BusTopology({ work: [Better] }) });
  const seen: unknown[] = [];
  bus.subscription("work").handler(Better, (event) => void seen.push(event.data));
  expect(await bus.subscription("work").retryFailed({ reason: "invalid_payload" })).toBe(1);
  await bus.run(IDLE);
  expect(seen).toEqual([{ name: "anonymous" }]);
});
