// Takes orders: node producer.mjs LOCATION
import { OrderPlaced, openBus } from "./shared.mjs";

const ORDERS = [
  { order: "A-1", cents: 4_200, country: "de" },
  { order: "A-2", cents: 1_999, country: "nz" },
  { order: "A-3", cents: 12_000, country: "fr" },
  { order: "A-1", cents: 4_200, country: "de" }, // the customer pressed the button twice
];

const bus = openBus(process.argv[2]);
for (const order of ORDERS) {
  const { subscriptions, inserted } = await bus.dispatch(OrderPlaced(order));
  const outcome = inserted.includes(true) ? `goes to ${subscriptions.join(", ")}` : "is known already";
  console.log(`producer: order ${order.order} ${outcome}`);
}
await bus.close();
