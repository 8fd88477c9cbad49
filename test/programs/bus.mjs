// A process on an event bus: it runs what the test asks for, and its handlers do what their events say.
import { setTimeout as sleep } from "node:timers/promises";
import { BusTopology, defineEvent, EventBus } from "../../dist/bus/index.js";
import { input, say, told } from "./lines.mjs";

const { location, routes, types = [], options, runs = [], subscriptionOptions } = input;
const definitions = new Map(types.map((type) => [type, defineEvent(type)]));
const make = ({ type, ...data }) => (definitions.get(type) ?? defineEvent(type))(data);
const topology = new BusTopology(
  Object.fromEntries(
    Object.entries(routes).map(([name, names]) => [name, names.map((type) => definitions.get(type) ?? type)]),
  ),
);
const bus = new EventBus(location, { ...options, topology });

for (const name of runs) {
  const subscription = bus.subscription(name, subscriptionOptions);
  for (const type of routes[name]) {
    subscription.handler(type, async ({ id, data }, { attempt, signal, emit }) => {
      const about = { subscription: name, id, data, attempt, at: performance.timeOrigin + performance.now() };
      say("handling", about);
      if (data.kills) process.kill(process.pid, "SIGKILL");
      if (data.waitsMs) await sleep(data.waitsMs);
      if (data.throws) throw new Error(data.throws);
      for (const event of data.emits ?? []) emit(make(event));
      say("handled", { ...about, at: performance.timeOrigin + performance.now(), aborted: signal.aborted });
    });
  }
}
for (const event of ["event:acked", "event:retried", "event:failed", "lease:lost"]) {
  bus.on(event, ({ subscription, event: { id, data } }) => say(event, { subscription, id, data }));
}
bus.on("error", ({ subscription, error }) => say("error", { subscription, error: `${error.name}: ${error.message}` }));

const running = bus.run();
say("running");
for await (const { dispatch } of told()) {
  const receipts = await bus.dispatchMany(dispatch.map(make)).catch(({ code }) => ({ code }));
  say("dispatched", { receipts });
}
await bus.close();
await running;
