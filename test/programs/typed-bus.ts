/*
 * What a TypeScript program can say with the event bus, and what the compiler must not let it say. It is compiled and
 * run as typed.ts is.
 */
import { LocalQueueError } from "localqueue";
import {
  type AnyEventDefinition,
  type BusRunOptions,
  BusTopology,
  type ContextFactory,
  type DispatchReceipt,
  defineEvent,
  type Event,
  EventBus,
  type EventBusEvents,
  type EventBusOptions,
  type EventContext,
  type EventDefinition,
  type EventDefinitionOptions,
  type EventHandler,
  type EventOptions,
  type EventPattern,
  type FailedDelivery,
  type HandlerResult,
  type ListSubscriptionsOptions,
  listSubscriptions,
  type SchemaIssue,
  type SchemaResult,
  type StandardSchema,
  type Subscription,
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

interface Tenant {
  readonly tenant: string;
}

/** Dispatches an event, handles it and what it leads to; resolves to the data that handlers got. */
async function serve(location: string, topology: BusTopology, event: Event<{ text: number }>): Promise<unknown[]> {
  const createContext: ContextFactory<Tenant> = (context: EventContext) => ({ tenant: `for ${context.subscription}` });
  const options: EventBusOptions<Tenant> = { name: "app", topology, createContext };
  const bus = new EventBus(location, options);
  const got: unknown[] = [];
  const failed: EventBusEvents["event:failed"][] = [];
  bus.on("event:failed", (failure) => void failed.push(failure));
  const receipt: DispatchReceipt = await bus.dispatch(event);
  same<typeof receipt.inserted, readonly boolean[]>();
  const email: Subscription<Tenant> = bus.subscription("email", { concurrency: 2 });
  email.handler(UserCreated, (created, context) => {
    same<typeof created.data, User>();
    same<typeof context.tenant, string>();
    got.push(created.data, context.tenant);
  });
  email.handler("user.deleted", async () => {});
  const measured: EventHandler<{ text: number }, Tenant> = ({ data }): HandlerResult => {
    got.push(data);
    return UserCreated({ userId: `${data.text}`, site: "a" });
  };
  bus
    .subscription("audit")
    .handler(Measured, measured)
    .handler("*", (other) => void got.push(other.type));
  const run: BusRunOptions = { idleTimeoutMs: 200 };
  await bus.run(run);
  const dead: FailedDelivery[] = await email.listFailed();
  await bus.close();
  for (const letter of dead) got.push(letter.decoded ? letter.event.data : letter.decodeError);
  return [...got.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).sort(), failed.length];
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
    // @ts-expect-error: a handler of other data
    () => new EventBus("./data", { topology }).subscription("email").handler(UserCreated, (_: Event<number>) => {}),
    // @ts-expect-error: a handler that returns something else
    () => new EventBus("./data", { topology }).subscription("email").handler(UserCreated, () => 1),
    // @ts-expect-error: a bus without a topology
    () => new EventBus("./data", { name: "app" }),
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
  const location = process.argv[2] ?? "";
  const got = await serve(location, topology, event);
  const listed = await list(location, { bus: "app" });
  const subscriptions = [...topology.subscriptionsFor(type), ...listed];
  process.stdout.write(JSON.stringify({ type, data, got, subscriptions, code, refused }));
}

main().catch((error: unknown) => {
  process.exitCode = 1;
  process.stderr.write(String(error));
});
