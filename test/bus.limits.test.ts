import { InvalidEventError, RetryPolicy } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent, type StandardSchema } from "../dist/bus/index.js";
import { IDLE, listenToBus, openBus, run, schema, storedIn } from "./support/bus.ts";
import { readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";

/** What handlers, schemas and factories may take too long for, or make too much of. */

const Order = defineEvent<{ n: number }>("order");
const never = new Promise<never>(() => {});
const Silent = defineEvent(
  "silent",
  schema(async (_: object) => never),
);

test("an event that is too large to be emitted makes a dead letter, and the bus goes on", async () => {
  const Large = defineEvent<{ text: string }>("large");
  const names = Array.from({ length: 20 }, (_, i) => `s${i}`);
  const topology = new BusTopology({ orders: [Order], ...Object.fromEntries(names.map((name) => [name, [Large]])) });
  const location = tempLocation();
  const bus = openBus({ location, topology });
  const told = listenToBus(bus);
  bus.subscription("orders").handler(Order, ({ data }) => {
    return data.n === 1 ? Large({ text: "x".repeat(14 * 1024 * 1024) }) : undefined;
  });
  await bus.dispatchMany([Order({ n: 1 }), Order({ n: 2 })]);
  await bus.run(IDLE);
  expect(told).toMatchObject([
    ["event:failed", "orders", { n: 1 }, { code: "PAYLOAD" }, "permanent_handler_error"],
    ["event:acked", "orders", { n: 2 }],
  ]);
});

describe("an emitted event whose asynchronous schema never answers", () => {
  const topology = new BusTopology({ orders: [Order], after: [Silent] });

  test("takes its time from the handler's", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology, maxRetries: 0 });
    const told = listenToBus(bus);
    bus.subscription("orders", { timeoutMs: 50 }).handler(Order, () => Silent({}));
    const { messageIds } = await bus.dispatch(Order({ n: 1 }));
    await bus.run(IDLE);
    expect(told).toMatchObject([["event:failed", "orders", { n: 1 }, { name: "TimeoutError" }, "handler_timeout"]]);
    expect(readRow(location, messageIds[0] as number)).toMatchObject({ status: 3, attempts: 1 });
    expect(storedIn(location, "after")).toEqual([]);
  });

  test("does not hold up the end of a run: the delivery is given back", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    let handled = false;
    bus.subscription("orders", { graceMs: 20 }).handler(Order, () => {
      handled = true;
      return Silent({});
    });
    const { messageIds } = await bus.dispatch(Order({ n: 1 }));
    const running = run(bus);
    await until(() => handled);
    await bus.close();
    await running;
    expect(readRow(location, messageIds[0] as number)).toMatchObject({ status: 0, attempts: 0 });
  });
});

test("a context that comes too late, when its delivery is over, reaches no handler", async () => {
  const topology = new BusTopology({ orders: [Order] });
  let come = (): void => {};
  const late = new Promise<void>((resolve) => {
    come = resolve;
  });
  let asked = 0;
  const createContext = async (): Promise<object> => {
    asked++;
    await late;
    return {};
  };
  const bus = openBus({ location: tempLocation(), topology, maxRetries: 0, createContext });
  const told = listenToBus(bus);
  let calls = 0;
  bus.subscription("orders", { timeoutMs: 50, graceMs: 50 }).handler(Order, () => void calls++);
  await bus.dispatch(Order({ n: 1 }));
  await bus.run(IDLE);
  expect(told).toMatchObject([["event:failed", "orders", { n: 1 }, { name: "TimeoutError" }, "handler_timeout"]]);
  come();
  await late;
  await new Promise(setImmediate);
  expect([asked, calls]).toEqual([1, 0]);
});

test("a schema that throws is no invalid event, also where those are permanent errors", async () => {
  let failures = 2;
  const validate: StandardSchema<object>["~standard"]["validate"] = (value) => {
    if (failures-- > 0) throw new Error("the registry is away");
    return { value: value as object };
  };
  const location = tempLocation();
  const plain = defineEvent("checked");
  const Checked = defineEvent("checked", { "~standard": { version: 1, vendor: "test", validate } });
  const producer = openBus({ location, topology: new BusTopology({ checks: [plain] }) });
  const { messageIds } = await producer.dispatch(plain({ n: 1 }));
  const bus = openBus({ location, topology: new BusTopology({ checks: [Checked] }) });
  const told = listenToBus(bus);
  const options = { permanentErrors: [InvalidEventError], retry: RetryPolicy.immediate() };
  bus.subscription("checks", options).handler(Checked, () => {});
  await bus.run(IDLE);
  const away = { message: "The schema of the event threw", cause: { message: "the registry is away" } };
  expect(told).toMatchObject([
    ["error", "checks", away],
    ["error", "checks", away],
    ["event:acked", "checks", { n: 1 }],
  ]);
  expect(readRow(location, messageIds[0] as number)["last_error"]).toBe("Error: the registry is away");
});
