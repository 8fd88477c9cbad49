import type { FailedDelivery } from "../bus/index.ts";
import { BUS, busName, inspectSubscription } from "./bus-access.ts";
import { causeOf } from "./dead-letter.ts";
import type { Place } from "./place.ts";
import { shortened } from "./wording.ts";

const LONGEST_TYPE = 30;

export const IN_SUBSCRIPTION: Place<FailedDelivery> = {
  prefix: "bus ",
  kind: "subscription",
  unit: "event",
  options: { subscription: { value: "NAME", help: 'The subscription, as "bus stats" lists it.' }, bus: BUS },
  typed: ["./data --subscription email", "./data --bus app --subscription email"],
  forgotten: "An event is known, by its id or its identity, only as long as it is kept.",
  inspect: inspectSubscription,
  name: (args) => `subscription "${args.text("subscription")}" of bus "${busName(args)}"`,
  title: (args) => `Subscription "${args.text("subscription")}" of bus "${busName(args)}" in ${args.shownLocation}`,
  columns: [
    ["event type", ({ eventType = "-" }) => shortened(eventType, LONGEST_TYPE)],
    ["event id", ({ jobId = "-" }) => jobId],
    ["reason", causeOf],
  ],
  about: ({ subscription, eventType, jobId }) => ({ subscription, eventType, eventId: jobId }),
  payload: ["envelope", "envelope"],
};
