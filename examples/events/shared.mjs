// What all processes of the shop share: its events, who gets them, and the bus.
import { BusTopology, defineEvent, EventBus } from "localqueue/bus";

export const OrderPlaced = defineEvent("order.placed", undefined, { identity: ["order"] });
export const OrderPaid = defineEvent("order.paid");
export const OrderShipped = defineEvent("order.shipped");

const topology = new BusTopology({
  billing: [OrderPlaced],
  shipping: [OrderPaid],
  mail: [OrderPlaced, OrderShipped],
  audit: ["*"],
});

export const openBus = (location) => new EventBus(location, { name: "shop", topology });
