import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent } from "../dist/bus/index.js";
import { type BusTold, IDLE, listenToBus, openBus, passTime } from "./support/bus.ts";
import { readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { until } from "./support/until.ts";
import { collectWarnings } from "./support/worker.ts";

const Old = defineEvent<{ n: number }>("old");
const New = defineEvent<{ n: number }>("new");
const before = new BusTopology({ work: [Old] });
const after = new BusTopology({ work: [Old, New] });

/** An old process: it knows nothing of the new type. Resolves to what it told. */
async function runOldProcess(location: string, topology = before): Promise<BusTold> {
  const bus = openBus({ location, topology });
  const told = listenToBus(bus);
  bus.subscription("work").handler(Old, () => {});
  await bus.run(IDLE);
  await bus.close();
  return told;
}

async function dispatchNew(location: string): Promise<number> {
  const bus = openBus({ location, topology: after, maxRetries: 0 });
  const { messageIds } = await bus.dispatch(New({ n: 1 }));
  await bus.close();
  return messageIds[0] as number;
}

describe("an event of a type that an old process does not know", () => {
  test("is left to others, uncounted, and the old process says so", async () => {
    const location = tempLocation();
    const id = await dispatchNew(location);
    const now = Date.now();
    const told = await runOldProcess(location);
    const message =
      'Subscription "work" got an event of the type "new", which is not known here. Other processes may take it: deploy one that handles it, or add a handler';
    expect(told).toEqual([["error", "work", expect.objectContaining({ code: "INVALID_EVENT", message })]]);
    const row = readRow(location, id);
    expect(row).toMatchObject({ status: 0, attempts: 0, releases: 1, last_error: `InvalidEventError: ${message}` });
    expect(row["available_at"]).toBeGreaterThanOrEqual(now + 1_000);
    expect(row["available_at"]).toBeLessThanOrEqual(Date.now() + 1_000);
  });

  test("is handled by a process that knows it", async () => {
    const location = tempLocation();
    const id = await dispatchNew(location);
    for (let round = 0; round < 3; round++) {
      await runOldProcess(location);
      passTime(location);
    }
    const bus = openBus({ location, topology: after });
    const seen: unknown[] = [];
    bus
      .subscription("work")
      .handler(Old, () => {})
      .handler(New, (event, { attempt }) => void seen.push([event.data, attempt]));
    await bus.run(IDLE);
    expect(seen).toEqual([[{ n: 1 }, 1]]);
    expect(readRow(location, id)).toMatchObject({ status: 2, attempts: 1 });
  });

  test("does not keep the old process from the events that it knows", async () => {
    const location = tempLocation();
    await dispatchNew(location);
    await openBus({ location, topology: after }).dispatch(Old({ n: 2 }));
    const told = await runOldProcess(location);
    expect(told.map(([name]) => name)).toEqual(["error", "event:acked"]);
  });

  test("waits longer each time, up to a minute; after ten times in a row it counts, and becomes a dead letter", async () => {
    const location = tempLocation();
    const id = await dispatchNew(location);
    const delays: number[] = [];
    let told: BusTold = [];
    while (readRow(location, id)["status"] === 0) {
      told = await runOldProcess(location);
      const { status, available_at: at, updated_at: released } = readRow(location, id);
      if (status === 0) delays.push((Number(at) - Number(released)) / 1_000);
      passTime(location);
    }
    expect(delays).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
    const dead = readRow(location, id);
    expect(dead).toMatchObject({ status: 3, attempts: 1, failure_reason: "unknown_event_type" });
    expect(dead["last_error"]).toContain('got an event of the type "new", which is not known here');
    const message = `Delivery ${id} of subscription "work" became a dead letter (unknown_event_type). ${dead["last_error"]}`;
    expect(told).toEqual([["error", "work", expect.objectContaining({ code: "INVALID_EVENT", message })]]);
  }, 60_000);

  test("goes to the handler for all others, if there is one, as it was stored", async () => {
    const location = tempLocation();
    await dispatchNew(location);
    const bus = openBus({ location, topology: before });
    const seen: unknown[] = [];
    bus.subscription("work").handler("*", ({ type, data, schema }) => void seen.push([type, data, schema]));
    await bus.run(IDLE);
    expect(seen).toEqual([["new", { n: 1 }, "new@1"]]);
  });
});

test("an event that is known, but has no handler here, becomes a dead letter with a reason of its own", async () => {
  const location = tempLocation();
  const id = await dispatchNew(location);
  const topology = new BusTopology({ work: [Old], other: [New] });
  let told: BusTold = [];
  while (readRow(location, id)["status"] === 0) {
    told = await runOldProcess(location, topology);
    passTime(location);
  }
  expect(readRow(location, id)).toMatchObject({ status: 3, failure_reason: "no_handler" });
  expect(told[0]?.[2]).toHaveProperty(
    "message",
    expect.stringContaining(
      '(no_handler). InvalidEventError: Subscription "work" got an event of the type "new", for which it has no handler here',
    ),
  );
}, 60_000);

test("a dead letter of an unknown type that nobody hears of gives a warning", async () => {
  const warnings = collectWarnings();
  const location = tempLocation();
  const id = await dispatchNew(location);
  while (readRow(location, id)["status"] === 0) {
    const bus = openBus({ location, topology: before });
    bus.subscription("work").handler(Old, () => {});
    await bus.run(IDLE);
    await bus.close();
    passTime(location);
  }
  await until(() => warnings.length === 1);
  expect(warnings).toMatchObject([
    {
      code: "LOCALQUEUE_UNHEARD_DEAD_LETTER",
      message: `Delivery ${id} of subscription "work" became a dead letter (unknown_event_type), and nobody listens for "event:failed" or "error" of its bus`,
    },
  ]);
}, 60_000);
