import { hiddenIn, hide } from "../brand.ts";
import { anyText, type Check, isPlainObject, outOfRange, wrongType } from "../options.ts";
import { type AnyEventDefinition, eventType, isDefinition } from "./definition.ts";

/** What a subscription takes: the events of a definition, of an exact type, or all with `"*"`. */
export type EventPattern = AnyEventDefinition | string;

const TOPOLOGY = Symbol.for("localqueue.BusTopology");
const ALL = "*";

/** What belongs to a topology and is not for users. Other copies of the package read it. */
interface TopologyRecord {
  readonly definitions: ReadonlyMap<string, AnyEventDefinition>;
}

/**
 * Which subscription gets which events: `new BusTopology({ email: [UserCreated, "user.deleted"], audit: ["*"] })`.
 * Fixed once it is made, and the same in all processes that use a bus.
 */
export class BusTopology {
  /** The names of the subscriptions, sorted. */
  readonly subscriptions: readonly string[];
  /** The patterns of each subscription as types of events, sorted, or `"*"`. */
  readonly routes: Readonly<Record<string, readonly string[]>>;
  readonly #byType: ReadonlyMap<string, readonly string[]>;
  readonly #toAll: readonly string[];

  /** Throws a `TypeError` or a `RangeError` that says what to mend. */
  constructor(routes: Readonly<Record<string, readonly EventPattern[]>>) {
    const definitions = new Map<string, AnyEventDefinition>();
    const read: Record<string, readonly string[]> = {};
    for (const [name, patterns] of Object.entries(plainObject(routes))) {
      read[busName(name, "subscription")] = readPatterns(patterns, `routes.${name}`, definitions);
    }
    this.subscriptions = Object.freeze(Object.keys(read).sort()); // of code units, which are ASCII here
    this.routes = Object.freeze(read);
    const taking = (...patterns: readonly string[]): readonly string[] =>
      Object.freeze(this.subscriptions.filter((name) => read[name]?.some((pattern) => patterns.includes(pattern))));
    this.#toAll = taking(ALL);
    this.#byType = new Map(Object.values(read).flatMap((types) => types.map((type) => [type, taking(type, ALL)])));
    hide(this, TOPOLOGY, { definitions } satisfies TopologyRecord);
    Object.freeze(this);
  }

  /** The names of the subscriptions that get events of this type, sorted; the same array each time. */
  subscriptionsFor(type: string): readonly string[] {
    return this.#byType.get(anyText(type, "type")) ?? this.#toAll;
  }

  /** Whether there is a subscription of this name. */
  has(name: string): boolean {
    return Object.hasOwn(this.routes, name);
  }
}

/** Also recognises the topologies of another copy of the package. */
export function isTopology(value: unknown): value is BusTopology {
  return hiddenIn(value, TOPOLOGY) !== undefined;
}

/** The definitions that were given in place of types, by type. */
export function definitionsOf(topology: BusTopology): ReadonlyMap<string, AnyEventDefinition> {
  return (hiddenIn(topology, TOPOLOGY) as TopologyRecord).definitions;
}

/** The name of a bus or a subscription. */
export const busName: Check<string> = (value, name) => {
  const expected = "a name of 1 to 100 letters, digits, `_`, `.` and `-`, beginning with a letter or a digit";
  if (typeof value !== "string") throw wrongType(name, expected, value);
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$/.test(value)) throw outOfRange(name, expected, value);
  return value;
};

function plainObject(routes: unknown): object {
  const expected = 'an object of patterns by subscription, such as { email: ["user.created"] }';
  if (!isPlainObject(routes)) throw wrongType("routes", expected, routes);
  if (Object.keys(routes).length === 0)
    throw outOfRange("routes", `${expected}, with one subscription or more`, routes);
  return routes;
}

function readPatterns(
  patterns: unknown,
  name: string,
  definitions: Map<string, AnyEventDefinition>,
): readonly string[] {
  const expected = 'an array of patterns, such as ["user.created"]';
  if (!Array.isArray(patterns)) throw wrongType(name, expected, patterns);
  if (patterns.length === 0) throw outOfRange(name, `${expected}, with one or more`, patterns);
  const types = Array.from(patterns, (pattern, index) => readPattern(pattern, `${name}[${index}]`, definitions));
  return Object.freeze([...new Set(types)].sort());
}

function readPattern(pattern: unknown, name: string, definitions: Map<string, AnyEventDefinition>): string {
  const expected = 'a pattern: a definition made by `defineEvent`, an exact name or "*"';
  if (isDefinition(pattern)) {
    const known = definitions.get(pattern.type);
    if (known !== undefined && known !== pattern) throw secondDefinition(name, pattern);
    definitions.set(pattern.type, pattern);
    return pattern.type;
  }
  if (typeof pattern !== "string") throw wrongType(name, expected, pattern);
  if (pattern === ALL) return pattern;
  if (pattern.includes(ALL)) throw outOfRange(name, expected, pattern);
  return eventType(pattern, name);
}

function secondDefinition(name: string, { type }: AnyEventDefinition): RangeError {
  return new RangeError(
    `Expected \`${name}\` to be the definition of "${type}" that the topology has already, got another`,
  );
}
