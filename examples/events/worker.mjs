// Runs some subscriptions, until it is stopped: node worker.mjs LOCATION SUBSCRIPTION…
import { appendFileSync } from "node:fs";
import path from "node:path";
import { Reject, Retry } from "localqueue";
import { OrderPaid, OrderPlaced, OrderShipped, openBus } from "./shared.mjs";

const [, , location, ...names] = process.argv;
const countries = (process.env.SHIPS_TO ?? "de,fr").split(",");

const say = ({ subscription, attempt }, text) => console.log(`${subscription}, delivery ${attempt}: ${text}`);

const HANDLERS = {
  /** The bank does not answer at once. What is returned is dispatched with the acknowledgement, or not at all. */
  billing: (subscription) =>
    subscription.handler(OrderPlaced, async ({ data }, context) => {
      if (context.attempt === 1) {
        say(context, `order ${data.order}: the bank is busy`);
        throw new Retry({ delayMs: 100, reason: "the bank is busy" });
      }
      say(context, `order ${data.order} is paid`);
      return OrderPaid(data);
    }),

  shipping: (subscription) =>
    subscription.handler(OrderPaid, async ({ data }, context) => {
      if (!countries.includes(data.country)) {
        throw new Reject(`we do not ship to ${data.country}`, { category: "country" });
      }
      say(context, `order ${data.order} is shipped`);
      context.emit(OrderShipped(data));
    }),

  mail: (subscription) =>
    subscription
      .handler(OrderPlaced, async ({ data }, context) => say(context, `"We have your order ${data.order}"`))
      .handler(OrderShipped, async ({ data }, context) => say(context, `"Your order ${data.order} is on its way"`)),

  audit: (subscription) =>
    subscription.handler("*", async ({ id, type, correlationId, causationId, data }) => {
      const line = JSON.stringify({ id, type, correlationId, causationId, order: data.order });
      appendFileSync(path.join(location, "audit.jsonl"), `${line}\n`);
    }),
};

const bus = openBus(location);
bus.on("event:failed", ({ subscription, error, reason }) => {
  console.log(`${subscription}: a dead letter, ${reason}: ${error.message}`);
});
bus.on("error", ({ error }) => console.error(error));

for (const name of names) HANDLERS[name](bus.subscription(name, { concurrency: 4 }));
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => bus.close());
await bus.run();
