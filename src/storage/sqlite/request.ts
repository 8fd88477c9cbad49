import type { Tally } from "../tally.ts";
import type { OutgoingBatch } from "./outgoing.ts";
import type { Command } from "./protocol.ts";

export const CLOSING_MS = 500;
/** What a closing session accepted waits this long for an engine that is slow to start. */
const SLOW_START_MS = 10_000;
/** However short the time-out: a busy engine is waited for this long, and one that is being started this long. */
export const LEAST_PATIENCE_MS = 100;
const OPENING_MS = 1000;

/** A command, and what the client needs to know about it. */
export interface Demand<A, Result> {
  /** Gets its number here. What it refers to must not change any more. */
  readonly command: Command;
  /** The payloads' size. */
  readonly bytes?: number;
  /** How long it may wait here before it is sent. */
  readonly patienceMs: number;
  readonly signal?: AbortSignal | undefined;
  /** What the caller gets of the answer, which is of the form that belongs to the command. */
  readonly read: (answer: A) => Result;
}

/** A command under way. */
export interface Request {
  readonly command: Command;
  readonly signal: AbortSignal | undefined;
  readonly read: (answer: never) => unknown;
  readonly tally: Tally;
  readonly bytes: number;
  readonly askedAt: number;
  /** When to give up waiting, here, for a busy engine; and for one that is being started. */
  endsAt: number;
  opensBy: number;
  /** Once its session closes: when to give up if the engine makes no headway. */
  closesBy: number | undefined;
  readonly resolve: (result: never) => void;
  readonly reject: (reason: unknown) => void;
  readonly forgetSignal: (() => void) | undefined;
  /** Where it waits; `undefined` once it was sent. */
  batch: OutgoingBatch | undefined;
}

/** How long a new request may wait before it is sent. */
export function patienceFrom(now: number, patienceMs: number): Pick<Request, "endsAt" | "opensBy"> {
  return { endsAt: now + Math.max(patienceMs, LEAST_PATIENCE_MS), opensBy: now + Math.max(patienceMs, OPENING_MS) };
}

/** When to give up on a request that was not sent yet. A closing session waits on while the engine makes headway. */
export function givesUpAt({ endsAt, opensBy, closesBy }: Request, ready: boolean, progressAt: number): number {
  const [latest, headwayMs] = ready ? [endsAt, CLOSING_MS] : [opensBy, SLOW_START_MS];
  return closesBy === undefined ? latest : Math.min(latest, Math.max(closesBy, progressAt + headwayMs));
}
