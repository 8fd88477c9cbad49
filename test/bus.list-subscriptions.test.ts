import { existsSync } from "node:fs";
import path from "node:path";
import { BusTopology, defineEvent, EventBus, listSubscriptions } from "localqueue/bus";
import { expect, test } from "vitest";
import { lacks } from "./support/capabilities.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";

const Happened = defineEvent("happened");

/** Dispatches an event on a bus to all of these subscriptions. */
async function dispatch(location: string, name: string, ...subscriptions: readonly string[]): Promise<void> {
  const topology = new BusTopology(Object.fromEntries(subscriptions.map((one) => [one, [Happened]])));
  const bus = new EventBus(location, { name, topology });
  await bus.dispatch(Happened({}));
  await bus.close();
}

const none = { ready: 0, processing: 0, acked: 0, failed: 0 };

test("subscriptions are listed by bus and name, in the order of code units, and no queue with them", async () => {
  const location = tempLocation();
  await openQueue({ location, name: "emails" }).put(1);
  await dispatch(location, "app1", "email");
  await dispatch(location, "app-b", "email");
  await dispatch(location, "app", "email", "Z", "audit");
  const found = await listSubscriptions(location);
  expect(found.map(({ bus, subscription }) => `${bus} ${subscription}`)).toEqual([
    ...["app Z", "app audit", "app email"],
    ...["app-b email", "app1 email"],
  ]);
  expect(found[0]).toEqual({ bus: "app", subscription: "Z", ...none, ready: 1 });
});

test("those of one bus can be asked for, and none is no error", async () => {
  const location = tempLocation();
  await dispatch(location, "app", "email");
  await dispatch(location, "app2", "audit");
  expect(await listSubscriptions(location, { bus: "app" })).toEqual([
    { bus: "app", subscription: "email", ...none, ready: 1 },
  ]);
  expect(await listSubscriptions(location, { bus: "ap" })).toEqual([]);
});

test("deliveries are counted in all states, and a subscription stays when it has none left", async () => {
  const location = tempLocation();
  const topology = new BusTopology({ email: [Happened] });
  await using bus = new EventBus(location, { topology, maxRetries: 0 });
  await bus.dispatchMany([Happened({ fails: false }), Happened({ fails: true })]);
  bus.on("event:failed", () => {});
  bus.subscription("email").handler(Happened, async (event) => {
    expect(await listSubscriptions(location)).toMatchObject([{ processing: 1 }]);
    if (event.data["fails"]) throw new Error("no such address");
  });
  await bus.run({ idleTimeoutMs: 1 });
  expect(await listSubscriptions(location)).toEqual([
    { bus: "default", subscription: "email", ...none, acked: 1, failed: 1 },
  ]);
  await bus.subscription("email").purge({ olderThanMs: 0, includeFailed: true });
  await bus.subscription("email").purgeFailed({});
  expect(await listSubscriptions(location)).toMatchObject([{ subscription: "email", failed: 0 }]);
});

test.skipIf(lacks("files"))("a place without a database gets one, as with all that looks", async () => {
  const location = path.join(tempDirectory(), "data");
  expect(await listSubscriptions(location)).toEqual([]);
  expect(existsSync(path.join(location, "localqueue.db"))).toBe(true);
});

test.each<[string, unknown, object | undefined, string]>([
  ["a directory that is none", "", undefined, "Expected `location` to be a directory"],
  ["a name that no bus has", "./unused", { bus: "a:b" }, "Expected `bus` to be a name of 1 to 100 letters"],
  ["an option that there is not", "./unused", { name: "app" }, "Unknown option `name`; known: `bus`"],
])("%s is refused", async (_, location, options, message) => {
  await expect(listSubscriptions(location as string, options)).rejects.toThrow(message);
  expect(existsSync("unused")).toBe(false);
});
