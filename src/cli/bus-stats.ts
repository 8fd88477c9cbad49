import { subscriptionsOf } from "./bus-access.ts";
import { type Command, JSON_REPORT } from "./command.ts";
import { EXIT } from "./failures.ts";
import { outgrown } from "./outgrown.ts";
import { print, printJson, tell } from "./output.ts";
import { inspect } from "./queue-access.ts";
import { printTable } from "./table.ts";
import { grouped, printable, shellLine } from "./wording.ts";

export const busStats: Command = {
  name: "bus stats",
  summary: "Tell how many events of each subscription are in each state.",
  operands: "<location>",
  options: { bus: { value: "NAME", help: "Only this event bus (default: all)." }, json: JSON_REPORT },
  notes: ["Subscriptions are listed once they have got an event. The states are told by localqueue stats --help."],
  examples: ["localqueue bus stats ./data", "localqueue bus stats ./data --bus app --json"],

  async run(args) {
    args.atMost(1);
    const { shownLocation } = args;
    const subscriptions = await inspect(args, () => subscriptionsOf(args, args.text("bus")));
    if (args.has("json")) printJson(subscriptions);
    else if (subscriptions.length === 0) print(`No subscription has got an event in ${shownLocation}`);
    else {
      const rows = subscriptions.map(({ bus, subscription, ready, processing, acked, failed }) => [
        printable(bus),
        printable(subscription),
        ...[ready, processing, acked, failed].map(grouped),
      ]);
      printTable(["bus", "subscription", "ready", "processing", "acked", "failed"], rows);
    }
    for (const { bus, subscription, ...counts } of subscriptions) {
      const command = ["localqueue", "bus", "purge", shownLocation, "--subscription", subscription, "--bus", bus];
      const warning = outgrown(counts, shellLine(command), "event");
      if (warning !== undefined) tell(warning);
    }
    return EXIT.done;
  },
};
