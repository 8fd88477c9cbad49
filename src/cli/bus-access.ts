import type { Subscription, SubscriptionStats } from "../bus/index.ts";
import type { Arguments, CommandOption } from "./arguments.ts";
import { Failure, Misuse } from "./failures.ts";
import type { Closable } from "./place.ts";
import { again, inspect } from "./queue-access.ts";
import { printable, shellLine } from "./wording.ts";

/** Loaded when it is needed: the other commands start faster without it. */
const loadBus = (): Promise<typeof import("../bus/index.ts")> => import("../bus/index.ts");

export const BUS: CommandOption = { value: "NAME", help: 'The event bus (default "default").' };

export function busName(args: Arguments): string {
  return args.text("bus") ?? "default";
}

/** All subscriptions that the file knows, or those of one bus, which it must know. */
export async function subscriptionsOf(args: Arguments, bus?: string): Promise<SubscriptionStats[]> {
  const { listSubscriptions } = await loadBus();
  const all = await listSubscriptions(args.location);
  const found = bus === undefined ? all : all.filter((one) => one.bus === bus);
  if (found.length > 0 || bus === undefined) return found;
  const buses = [...new Set(all.map((one) => one.bus))];
  const hint = buses.length === 1 ? `: type ${shellLine(["--bus", ...buses])}` : "";
  throw unknown(`event bus "${bus}" in ${args.shownLocation}`, buses, hint);
}

/** Looks at the subscription that the arguments name, which must be there; nothing is created. */
export async function inspectSubscription<T>(
  args: Arguments,
  look: (subscription: Subscription, owner: Closable) => Promise<T>,
): Promise<T> {
  const name = args.text("subscription");
  if (!name) {
    throw new Misuse(`The subscription is missing: --subscription NAME; ${again(args, "bus stats")} lists them.`);
  }
  return inspect(args, async () => {
    const known = (await subscriptionsOf(args, busName(args))).map(({ subscription }) => subscription);
    if (!known.includes(name)) {
      throw unknown(`subscription "${name}" of bus "${busName(args)}" in ${args.shownLocation}`, known);
    }
    const { BusTopology, EventBus } = await loadBus();
    const topology = new BusTopology({ [name]: ["*"] });
    const bus = new EventBus(args.location, { name: busName(args), topology });
    try {
      return await look(bus.subscription(name), bus);
    } finally {
      await bus.close();
    }
  });
}

function unknown(what: string, known: readonly string[], hint = ""): Failure {
  const names = known.map((name) => `"${name}"`).join(", ");
  const all = known.length > 1 ? `there are ${names}` : `there is ${names || "none"}`;
  return new Failure(printable(`There is no ${what}; ${all}${hint}.`));
}
