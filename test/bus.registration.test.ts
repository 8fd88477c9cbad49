import { RetryPolicy } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent, type EventHandler } from "../dist/bus/index.js";
import { IDLE, openBus, run } from "./support/bus.ts";
import { until } from "./support/until.ts";
import { gate } from "./support/worker.ts";

const Created = defineEvent<{ n: number }>("created");
const Deleted = defineEvent<{ n: number }>("deleted");
const topology = new BusTopology({ email: [Created], stats: [Created, Deleted], audit: ["*"], texts: ["typed"] });
const nothing = (): void => {};

describe("a handler is refused", () => {
  test.each<[string, unknown, string]>([
    ["email", Deleted, 'The topology does not route "deleted" to subscription "email": add it there'],
    ["email", "delted", 'The topology does not route "delted" to subscription "email": add it there'],
    [
      "stats",
      defineEvent("created"),
      'There is another definition of "created" on this bus: use the same one in the topology and for all handlers',
    ],
    ["audit", "user.*", "Expected `pattern` to be a name without `*`, which stands for all events"],
    ["audit", " ", "Expected `pattern` to be a name that is not blank"],
    ["audit", 5, 'Expected `pattern` to be an event definition, the name of a type, or "*", got `5` (number)'],
    ["audit", Created({ n: 1 }), 'Expected `pattern` to be an event definition, the name of a type, or "*", got'],
    ["audit", undefined, "got `undefined`"],
  ])("in %s for what it cannot get", (name, pattern, message) => {
    const bus = openBus({ topology });
    expect(() => bus.subscription(name).handler(pattern as string, nothing)).toThrow(message);
  });

  test("if there is one already, also by its type", () => {
    const subscription = openBus({ topology }).subscription("stats").handler(Created, nothing);
    for (const pattern of [Created, "created"]) {
      expect(() => subscription.handler(pattern as "created", nothing)).toThrow(
        'There is a handler for "created" in subscription "stats" already',
      );
    }
    subscription.handler("*", nothing);
    expect(() => subscription.handler("*", nothing)).toThrow(
      'There is a handler for "*" in subscription "stats" already',
    );
  });

  test("if it is no function", () => {
    const subscription = openBus({ topology }).subscription("stats");
    expect(() => subscription.handler(Created, 5 as never)).toThrow("Expected `handler` to be a function, got `5`");
    subscription.handler(Created, nothing); // nothing was left behind
  });

  test("if the definition that another one gave is not the same", () => {
    const bus = openBus({ topology });
    bus.subscription("texts").handler(defineEvent("typed"), nothing);
    const another = bus.subscription("audit");
    expect(() => another.handler(defineEvent("typed"), nothing)).toThrow('There is another definition of "typed"');
    another.handler("typed", nothing);
  });

  test("once the subscription has run, also while it runs", async () => {
    const bus = openBus({ topology });
    const email = bus.subscription("email").handler(Created, nothing);
    const running = run(bus);
    const message = 'Subscription "email" has been run: its handlers must be set before';
    expect(() => email.handler("*", nothing)).toThrow(message);
    await bus.close();
    await running;
    expect(() => email.handler("*", nothing)).toThrow(message);
  });
});

test("a handler changes no routes: what its subscription does not get, it does not get", async () => {
  const bus = openBus({ topology });
  const seen: string[] = [];
  bus.subscription("email").handler("*", ({ type }) => void seen.push(type));
  await bus.dispatchMany([Created({ n: 1 }), Deleted({ n: 2 })]);
  await bus.run(IDLE);
  expect(seen).toEqual(["created"]);
});

describe("a subscription", () => {
  test("that the topology does not know is refused", () => {
    const bus = openBus({ topology });
    expect(() => bus.subscription("emial")).toThrow("Unknown subscription `emial`; did you mean `email`?");
    expect(() => bus.subscription(5 as never)).toThrow(
      "Unknown subscription `5`; known: `audit`, `email`, `stats`, `texts`",
    );
  });

  test("is the same object each time, and goes on with its own", () => {
    const bus = openBus({ topology });
    const email = bus.subscription("email");
    expect(email.name).toBe("email");
    expect(email.handler(Created, nothing)).toBe(email);
    expect(bus.subscription("email")).toBe(email);
  });

  test("has each option once, or again to the same value", () => {
    const bus = openBus({ topology });
    bus.subscription("email", { concurrency: 8, retry: RetryPolicy.fixed(5), permanentErrors: [TypeError] });
    bus.subscription("email", { concurrency: 8, retry: RetryPolicy.fixed(5), permanentErrors: [TypeError] });
    bus.subscription("email", { timeoutMs: 50, concurrency: undefined });
    for (const [options, name] of [
      [{ concurrency: 1 }, "concurrency"],
      [{ retry: RetryPolicy.fixed(6) }, "retry"],
      [{ timeoutMs: 51, graceMs: 5 }, "timeoutMs"],
      [{ permanentErrors: [] }, "permanentErrors"],
    ] as const) {
      expect(() => bus.subscription("email", options)).toThrow(
        `The option \`${name}\` of subscription "email" is set to another value already`,
      );
    }
    bus.subscription("email", { graceMs: 6 }); // the refused call set nothing
    bus.subscription("stats", { concurrency: 1 }); // another subscription is another matter
  });

  test.each([
    [{ concurrency: 0 }, "`concurrency`"],
    [{ concurrency: 1.5 }, "`concurrency`"],
    [{ concurrency: true }, "`concurrency`"],
    [{ timeoutMs: 0 }, "`timeoutMs`"],
    [{ timeoutMs: Number.POSITIVE_INFINITY }, "`timeoutMs`"],
    [{ heartbeatMs: 60_000 }, "Expected `heartbeatMs` to be shorter than the lease of 60000 ms"],
    [{ permanentErrors: ["TypeError"] }, "`permanentErrors[0]`"],
    [{ retry: 5 }, "`retry`"],
    [{ concurency: 5 }, "Unknown option `concurency`"],
    [5, "an object"],
  ])("refuses the options %j", (options, message) => {
    const bus = openBus({ topology });
    expect(() => bus.subscription("email", options as object)).toThrow(message);
    bus.subscription("email", { concurrency: 2 });
  });

  test("takes no more options once it has run, not even the same ones", async () => {
    const bus = openBus({ topology });
    bus.subscription("email", { concurrency: 2 }).handler(Created, nothing);
    await bus.run(IDLE);
    expect(() => bus.subscription("email", { concurrency: 2 })).toThrow(
      'Subscription "email" has been run: its options must be set before',
    );
    bus.subscription("email");
    bus.subscription("stats", { concurrency: 2 }); // this one has not
  });
});

describe("a run is refused", () => {
  test.each<[string, string, readonly string[], string]>([
    ["stats", "a type", ["created"], '"deleted"'],
    ["audit", "a type named elsewhere", ["created"], '"deleted", "typed"'],
  ])("if %s has handlers, but none for %s that it gets", async (name, _, handled, lacking) => {
    const bus = openBus({ topology });
    const subscription = bus.subscription(name);
    for (const type of handled) subscription.handler(type, nothing as EventHandler<unknown>);
    const message = `Subscription "${name}" has handlers here, but none for ${lacking}, which the topology routes to it: add them, or one for "*"`;
    await expect(bus.run()).rejects.toThrow(message);
    subscription.handler("*", nothing);
    await bus.run(IDLE);
  });

  test("of a subscription without handlers", async () => {
    await expect(openBus({ topology }).runSubscription("email")).rejects.toThrow(
      'Subscription "email" has no handler here: add one with bus.subscription("email").handler(…)',
    );
  });

  test("of a subscription that is not in the topology", async () => {
    await expect(openBus({ topology }).runSubscription("emial")).rejects.toThrow("Unknown subscription `emial`");
  });

  test("while one of its subscriptions runs; the others may", async () => {
    const bus = openBus({ topology });
    const finish = gate();
    bus.subscription("email").handler(Created, () => finish.passed);
    bus.subscription("audit").handler("*", nothing);
    await bus.dispatch(Created({ n: 1 }));
    const running = bus.runSubscription("email", IDLE);
    await until(async () => (await bus.subscription("email").stats()).processing === 1);
    const message = 'Subscription "email" is running already';
    await expect(bus.run()).rejects.toThrow(message);
    await expect(bus.runSubscription("email")).rejects.toThrow(message);
    await bus.runSubscription("audit", IDLE);
    expect(await bus.subscription("audit").stats()).toMatchObject({ acked: 1 });
    finish.open();
    await running;
    await bus.run(IDLE);
  });

  test.each([
    [{ signal: 5 }, "`signal`"],
    [{ idleTimeout: 5 }, "Unknown option `idleTimeout`"],
    [5, "an object"],
  ])("with the options %j", async (options, message) => {
    const bus = openBus({ topology });
    await expect(bus.run(options as object)).rejects.toThrow(message);
  });
});
