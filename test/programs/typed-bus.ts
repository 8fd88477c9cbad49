/*
 * What a TypeScript program can say with the event bus, and what the compiler must not let it say. It is compiled and
 * run as typed.ts is.
 */
import { LocalQueueError } from "localqueue";
import {
  type AnyEventDefinition,
  BusTopology,
  defineEvent,
  type Event,
  type EventDefinition,
  type EventDefinitionOptions,
  type EventOptions,
  type EventPattern,
  type ListSubscriptionsOptions,
  listSubscriptions,
  type SchemaIssue,
  type SchemaResult,
  type StandardSchema,
  type SubscriptionStats,
} from "localqueue/bus";

interface User {
  readonly userId: string;
  readonly site?: string;
}

/** Compiles only if the two types are the same; `any` is the same as nothing else. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(..._: Same<A, B> extends true ? [] : ["these types differ"]): void => {};

/** A schema as libraries make them: texts come in, numbers go out. */
const length: StandardSchema<{ text: string }, { text: number }> = {
  "~standard": {
    version: 1,
    vendor: "typed",
    validate(value): SchemaResult<{ text: number }> {
      const { text } = value as { text?: unknown };
      const issue: SchemaIssue = { message: "is no text", path: ["text"] };
      return typeof text === "string" ? { value: { text: text.length } } : { issues: [issue] };
    },
  },
};

const options: EventDefinitionOptions<User> = { version: 2, identity: ["userId", "site"] };
const UserCreated = defineEvent<User>("user.created", undefined, options);
const Measured = defineEvent("measured", length, { identity: ["text"] });
const Anything = defineEvent("anything");
same<typeof UserCreated, EventDefinition<User, User>>();
same<typeof Measured, EventDefinition<{ text: string }, { text: number }>>();
same<typeof Anything, EventDefinition<Record<string, unknown>, Record<string, unknown>>>();

function create(): Event<{ text: number }> {
  const given: EventOptions = { id: crypto.randomUUID(), createdAt: new Date(), correlationId: undefined };
  const user = UserCreated({ userId: "7", site: "a" }, given);
  same<typeof user, Event<User>>();
  same<typeof user.data, User>();
  same<typeof user.id, string>();
  same<typeof user.createdAt, Date>();
  same<typeof user.causationId, string | undefined>();
  Anything({ whatever: [1] });
  const measured = Measured.from(user, { text: "four" });
  same<typeof measured.data, { text: number }>();
  const any: Event = measured;
  same<typeof any.data, unknown>();
  return measured;
}

function route(): BusTopology {
  const definitions: AnyEventDefinition[] = [UserCreated, Measured, Anything];
  const patterns: EventPattern[] = ["*", ...definitions];
  const topology = new BusTopology({ email: [UserCreated, "user.deleted"], audit: patterns });
  same<typeof topology.subscriptions, readonly string[]>();
  same<ReturnType<typeof topology.subscriptionsFor>, readonly string[]>();
  same<typeof topology.routes, Readonly<Record<string, readonly string[]>>>();
  return topology;
}

async function list(location: string, options: ListSubscriptionsOptions): Promise<string[]> {
  const found: readonly SubscriptionStats[] = await listSubscriptions(location, options);
  return found.map(({ bus, subscription, ready }) => `${bus} ${subscription} ${ready}`);
}

function explain(error: unknown): string {
  return error instanceof LocalQueueError ? error.code : "unknown";
}

/** What must not compile; none of it is called. */
function mistakes(topology: BusTopology, event: Event<User>): readonly (() => unknown)[] {
  return [
    // @ts-expect-error: other data
    () => UserCreated({ user: "7" }),
    // @ts-expect-error: data of the output, not of the input
    () => Measured({ text: 4 }),
    // @ts-expect-error: a misspelled option
    () => UserCreated({ userId: "7" }, { correlation: event.id }),
    // @ts-expect-error: a parent that is no event
    () => UserCreated.from({ id: "7" }, { userId: "7" }),
    // @ts-expect-error: other data of a child
    () => Measured.from(event, { userId: "7" }),
    // @ts-expect-error: a field that the data does not have
    () => defineEvent<User>("user", undefined, { identity: ["id"] }),
    // @ts-expect-error: a field that the input does not have
    () => defineEvent("measured", length, { identity: ["length"] }),
    // @ts-expect-error: a schema that follows no standard
    () => defineEvent("user", { parse: () => event }),
    // @ts-expect-error: data that is no object
    () => defineEvent<string>("user"),
    // @ts-expect-error: an event is frozen
    () => Object.assign(event, {}).id++,
    // @ts-expect-error: a pattern in place of an array
    () => new BusTopology({ email: UserCreated }),
    // @ts-expect-error: a pattern that is neither a definition nor a text
    () => new BusTopology({ email: [() => {}] }),
    // @ts-expect-error: a type is a text
    () => topology.subscriptionsFor(UserCreated),
  ];
}

async function main(): Promise<void> {
  const event = create();
  const topology = route();
  let code = "none";
  try {
    Measured({ text: 5 as unknown as string });
  } catch (error) {
    code = explain(error);
  }
  const refused = mistakes(topology, UserCreated({ userId: "7", site: "a" })).length;
  const { type, data } = event;
  const listed = await list(process.argv[2] ?? "", { bus: "app" });
  const subscriptions = [...topology.subscriptionsFor(type), ...listed];
  process.stdout.write(JSON.stringify({ type, data, subscriptions, code, refused }));
}

main().catch((error: unknown) => {
  process.exitCode = 1;
  process.stderr.write(String(error));
});
