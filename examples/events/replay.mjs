// Has the dead letters of a cause delivered again: node replay.mjs LOCATION SUBSCRIPTION CATEGORY
import { openBus } from "./shared.mjs";

const [, , location, name, category] = process.argv;

const bus = openBus(location);
const subscription = bus.subscription(name);
for (const { event, reason, lastError } of await subscription.listFailed({ category })) {
  console.log(`replay: order ${event.data.order} failed in ${name} (${reason}, ${lastError})`);
}
const replayed = await subscription.retryFailed({ category });
console.log(`replay: ${replayed} will be delivered again`);
await bus.close();
