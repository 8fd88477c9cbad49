import { describe, expect, test } from "vitest";
import { defineEvent } from "../dist/bus/definition.js";
import { BusTopology, busName, definitionsOf, isTopology } from "../dist/bus/topology.js";
import { hostile } from "./support/hostile.ts";

const UserCreated = defineEvent("user.created");
const UserDeleted = defineEvent("user.deleted");

describe("a topology", () => {
  test("routes definitions, exact names and everything to subscriptions, sorted", () => {
    const topology = new BusTopology({
      email: [UserCreated, "user.deleted"],
      audit: ["*"],
      billing: ["user.created", "user.created", UserCreated],
    });
    expect(topology.subscriptions).toEqual(["audit", "billing", "email"]);
    expect(topology.subscriptionsFor("user.created")).toEqual(["audit", "billing", "email"]);
    expect(topology.subscriptionsFor("user.deleted")).toEqual(["audit", "email"]);
    expect(topology.subscriptionsFor("anything else")).toEqual(["audit"]);
    expect(topology.routes).toEqual({
      audit: ["*"],
      billing: ["user.created"],
      email: ["user.created", "user.deleted"],
    });
    expect([topology.has("email"), topology.has("mail"), topology.has("toString")]).toEqual([true, false, false]);
    expect([...definitionsOf(topology).values()]).toEqual([UserCreated]);
  });

  test("takes exact names exactly", () => {
    const topology = new BusTopology({ email: ["user.created"], constructor: ["a", "*"] });
    expect(topology.subscriptionsFor("user.create")).toEqual(["constructor"]);
    expect(topology.subscriptionsFor("User.created")).toEqual(["constructor"]);
    expect(topology.subscriptionsFor("a")).toEqual(["constructor"]);
    expect(new BusTopology({ email: ["user.created"] }).subscriptionsFor("other")).toEqual([]);
  });

  test("gives the same frozen array each time", () => {
    const topology = new BusTopology({ email: [UserCreated], audit: ["*"] });
    for (const type of ["user.created", "other"]) {
      expect(topology.subscriptionsFor(type)).toBe(topology.subscriptionsFor(type));
      expect(Object.isFrozen(topology.subscriptionsFor(type))).toBe(true);
    }
    const { routes, subscriptions } = topology;
    expect([topology, routes, routes["email"], subscriptions].every(Object.isFrozen)).toBe(true);
  });

  test("copies what it is given", () => {
    const email: (typeof UserCreated | string)[] = [UserCreated];
    const routes: Record<string, typeof email> = { email };
    const topology = new BusTopology(routes);
    email.push(UserDeleted);
    routes["audit"] = ["*"];
    expect(topology.subscriptions).toEqual(["email"]);
    expect(topology.subscriptionsFor("user.deleted")).toEqual([]);
  });

  test("is recognised, and nothing else is one", () => {
    expect(isTopology(new BusTopology({ email: [UserCreated] }))).toBe(true);
    for (const other of [undefined, {}, { subscriptions: [] }, BusTopology, hostile()]) {
      expect(isTopology(other)).toBe(false);
    }
  });

  const name = "a name of 1 to 100 letters, digits, `_`, `.` and `-`, beginning with a letter or a digit";
  const pattern = 'a pattern: a definition made by `defineEvent`, an exact name or "*"';
  test.each<[unknown, new (text: string) => Error, string]>([
    [undefined, TypeError, "Expected `routes` to be an object of patterns by subscription, such as { email: ["],
    [null, TypeError, "Expected `routes` to be an object"],
    ["email", TypeError, "Expected `routes` to be an object"],
    [["email"], TypeError, "got `Array` (object)"],
    [new Map([["email", ["*"]]]), TypeError, "got `Map` (object)"],
    [UserCreated, TypeError, "got a function"],
    [{}, RangeError, "with one subscription or more"],
    [{ "": ["*"] }, RangeError, `Expected \`subscription\` to be ${name}`],
    [{ "-a": ["*"] }, RangeError, name],
    [{ "a:b": ["*"] }, RangeError, name],
    [{ "a\n": ["*"] }, RangeError, name],
    [{ ["a".repeat(101)]: ["*"] }, RangeError, name],
    [JSON.parse('{ "__proto__": ["*"] }'), RangeError, name],
    [{ email: "user.created" }, TypeError, "Expected `routes.email` to be an array of patterns, such as ["],
    [{ email: UserCreated }, TypeError, "Expected `routes.email` to be an array of patterns"],
    [{ email: new Set(["*"]) }, TypeError, "got `Set` (object)"],
    [
      { email: [] },
      RangeError,
      'Expected `routes.email` to be an array of patterns, such as ["user.created"], with one or',
    ],
    [{ email: ["*", ""] }, RangeError, "Expected `routes.email[1]` to be a string of 1 to 200 characters"],
    [{ email: [" "] }, RangeError, "a name that is not blank"],
    [{ email: ["user.*"] }, RangeError, `Expected \`routes.email[0]\` to be ${pattern}, got`],
    [{ email: ["**"] }, RangeError, pattern],
    [{ email: [() => {}] }, TypeError, `${pattern}, got a function`],
    [{ email: [{}] }, TypeError, pattern],
    // biome-ignore lint/suspicious/noSparseArray: that is the point
    [{ email: [, "*"] }, TypeError, "Expected `routes.email[0]` to be a pattern"],
    [
      { a: [UserCreated], b: [defineEvent("user.created")] },
      RangeError,
      "Expected `routes.b[0]` to be the definition of",
    ],
  ])("says how to mend %o", (routes, error, message) => {
    const make = () => new BusTopology(routes as never);
    expect(make).toThrow(error);
    expect(make).toThrow(message);
  });

  test("refuses a type that is no text", () => {
    const topology = new BusTopology({ email: ["*"] });
    expect(() => topology.subscriptionsFor(UserCreated as never)).toThrow("Expected `type` to be a string");
  });

  test("has subscriptions with names of any length up to 100", () => {
    for (const name of ["a", "7", "A.b_c-d", "x".repeat(100)]) expect(busName(name, "name")).toBe(name);
    expect(() => busName(5, "name")).toThrow(TypeError);
  });
});
