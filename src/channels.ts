import { channel } from "node:diagnostics_channel";
import type { Result } from "./handler-run.ts";
import type { Job } from "./job.ts";
import { isStorable } from "./options.ts";
import type { FailureReason, JobState } from "./state.ts";
import type { Delivery, Enqueued, Entry, Envelope, Lease, Settlement, Storage, Wait } from "./storage/storage.ts";
import { monotonicNow } from "./timers.ts";
import { warnOnce } from "./warning.ts";

/**
 * What a queue tells on the channels of `node:diagnostics_channel`, for loggers, metrics and traces. Plain channels
 * rather than a `TracingChannel`: its `end` is that of the synchronous part, which for us means nothing. As long as
 * nobody listens, each costs a look at `hasSubscribers`.
 */

/** A job is about to be put. No payloads are told, here or in any other message. */
export interface PutMessage {
  readonly queue: string;
  readonly jobId: string | undefined;
  readonly delayMs: number;
  /**
   * To be set by a subscriber: a string of up to 1,024 characters, such as a W3C `traceparent`. It is stored with the
   * job and comes back with each of its deliveries.
   */
  context: string | undefined;
}

/** The put has ended: the same object as at its beginning, and more in it. */
export interface PutEndMessage extends Readonly<PutMessage> {
  /** The job's number; `undefined` if it could not be put. */
  readonly id: number | undefined;
  /** `false` when the `jobId` was known already; then the job keeps the context that it has. */
  readonly inserted: boolean | undefined;
  /** Until COMMIT, or until it failed. */
  readonly durationMs: number;
  /** Why it could not be put. */
  readonly error: unknown;
}

/** A job was claimed, by hand or by a worker. */
export interface ClaimMessage {
  readonly queue: string;
  readonly id: number;
  readonly jobId: string | undefined;
  /** 1 at the first delivery. */
  readonly attempt: number;
  /** When the job was put. */
  readonly enqueuedAt: Date;
  /** What a subscriber set when the job was put. */
  readonly context: string | undefined;
}

/** A worker calls its handler. Stores that are bound to the channel are entered for the handler, and all it awaits. */
export interface HandlerMessage extends ClaimMessage {}

/** The handler has ended: the same object as at its beginning, and more in it. */
export interface HandlerEndMessage extends HandlerMessage {
  readonly durationMs: number;
  /** What became of the run; what becomes of the job, `localqueue:settle` tells. */
  readonly outcome: "returned" | "threw" | "timed out" | "interrupted" | "lease lost" | "abandoned";
  /** What the handler threw, or its time-out. */
  readonly error: unknown;
}

/** A delivery was ended by its holder, and this is committed. */
export interface SettleMessage {
  readonly queue: string;
  readonly id: number;
  /** These two are unknown if the job was settled by id and receipt alone. */
  readonly jobId: string | undefined;
  readonly attempt: number | undefined;
  readonly outcome: "acked" | "retried" | "failed" | "released";
  /** How long the job waits for its next delivery, if it is to be retried. */
  readonly delayMs: number | undefined;
  /** Why it became a dead letter, if it did. */
  readonly reason: FailureReason | undefined;
  readonly category: string | undefined;
  /** As stored: `Name: message`. */
  readonly lastError: string | undefined;
}

/** A holder learns that its lease is gone: somebody else may have the job. */
export interface LeaseLostMessage {
  readonly queue: string;
  readonly id: number;
  /** These two are unknown if all that is known is an id and a receipt. */
  readonly jobId: string | undefined;
  readonly attempt: number | undefined;
}

/** A fault of the storage that a worker waits out. */
export interface ErrorMessage {
  readonly queue: string;
  readonly error: unknown;
}

/** The channels by name, and what is published on them. */
export interface ChannelMessages {
  "localqueue:put": PutMessage;
  "localqueue:put:end": PutEndMessage;
  "localqueue:claim": ClaimMessage;
  "localqueue:handler": HandlerMessage;
  "localqueue:handler:end": HandlerEndMessage;
  "localqueue:settle": SettleMessage;
  "localqueue:lease-lost": LeaseLostMessage;
  "localqueue:error": ErrorMessage;
}

const open = (name: keyof ChannelMessages): ReturnType<typeof channel> => channel(name);

const puts = open("localqueue:put");
const putEnds = open("localqueue:put:end");
const claims = open("localqueue:claim");
const handlers = open("localqueue:handler");
const handlerEnds = open("localqueue:handler:end");
const settlements = open("localqueue:settle");
const lostLeases = open("localqueue:lease-lost");
const errors = open("localqueue:error");

const LONGEST_CONTEXT = 1024;

type Writable<M> = { -readonly [K in keyof M]: M[K] };

/** A put that somebody listens to. */
export interface ObservedPut {
  readonly message: PutMessage;
  readonly startedAt: number;
}

export function arePutsObserved(): boolean {
  return puts.hasSubscribers || putEnds.hasSubscribers;
}

/** `undefined`: nobody listens. */
export function putBegins(queue: string, jobId: string | undefined, delayMs: number): ObservedPut | undefined {
  if (!arePutsObserved()) return undefined;
  const message: PutMessage = { queue, jobId, delayMs, context: undefined };
  puts.publish(message);
  return { message, startedAt: monotonicNow() };
}

/** What is to be stored with the job. */
export function contextOf({ message }: ObservedPut): string | undefined {
  return readContext(message.context);
}

export function putEnded({ message, startedAt }: ObservedPut, enqueued: Enqueued | undefined, error: unknown): void {
  const { id, inserted } = enqueued ?? { id: undefined, inserted: undefined };
  const durationMs = monotonicNow() - startedAt;
  putEnds.publish(Object.assign(message, { id, inserted, durationMs, error }) satisfies PutEndMessage);
}

export function put(storage: Storage, queue: string, entries: readonly Entry[], wait: Wait): Promise<Enqueued[]> {
  if (!arePutsObserved()) return storage.put(entries, wait);
  return tell(
    queue,
    entries,
    (linked) => storage.put(linked, wait),
    (enqueued) => enqueued,
  );
}

/** An event is told as one put, into the queue of the bus; its id is that of the first delivery. */
export function dispatch(storage: Storage, queue: string, envelopes: readonly Envelope[]): Promise<Enqueued[][]> {
  if (!arePutsObserved()) return storage.dispatch(envelopes);
  return tell(
    queue,
    envelopes,
    (linked) => storage.dispatch(linked),
    ([first]) => first,
  );
}

interface Item {
  readonly jobId: string | undefined;
  readonly delayMs?: number;
  readonly context?: string | undefined;
}

async function tell<I extends Item, Outcome>(
  queue: string,
  items: readonly I[],
  commit: (linked: readonly I[]) => Promise<Outcome[]>,
  enqueuedOf: (outcome: Outcome) => Enqueued | undefined,
): Promise<Outcome[]> {
  const observed = items.map(({ jobId, delayMs = 0 }) => putBegins(queue, jobId, delayMs));
  const linked = items.map((item, i) => ({ ...item, context: observed[i] && contextOf(observed[i]) }));
  const end = (outcomes: readonly Outcome[], error?: unknown): void => {
    for (const [i, put] of observed.entries()) {
      const outcome = outcomes[i];
      if (put !== undefined) putEnded(put, outcome === undefined ? undefined : enqueuedOf(outcome), error);
    }
  };
  try {
    const outcomes = await commit(linked);
    end(outcomes);
    return outcomes;
  } catch (error) {
    end([], error);
    throw error;
  }
}

/** What does not fit is no reason to lose a job. */
function readContext(context: unknown): string | undefined {
  if (context === undefined) return undefined;
  if (typeof context === "string" && context.length <= LONGEST_CONTEXT && isStorable(context)) return context;
  const expected = `a string of at most ${LONGEST_CONTEXT} characters without NUL or lone surrogates`;
  warnOnce(
    "LOCALQUEUE_CONTEXT_IGNORED",
    `What a subscriber of "localqueue:put" sets as the context must be ${expected}. It was ignored.`,
  );
  return undefined;
}

export function claimed(queue: string, delivery: Delivery): void {
  if (claims.hasSubscribers) claims.publish(describe(queue, delivery));
}

function describe(queue: string, { id, jobId, attempt, enqueuedAt, context }: Delivery): ClaimMessage {
  return { queue, id, jobId, attempt, enqueuedAt: new Date(enqueuedAt), context };
}

/** The run of a handler that somebody listens to. */
export interface ObservedRun {
  readonly message: HandlerMessage;
  readonly startedAt: number;
}

/** `undefined`: nobody listens. */
export function observeRun(queue: string, delivery: Delivery): ObservedRun | undefined {
  if (!handlers.hasSubscribers && !handlerEnds.hasSubscribers) return undefined;
  return { message: describe(queue, delivery), startedAt: monotonicNow() };
}

/** Calls the handler inside the stores that are bound to the channel. */
export function runObserved({ message }: ObservedRun, handler: () => unknown): unknown {
  return handlers.runStores(message, handler);
}

export function runEnded({ message, startedAt }: ObservedRun, result: Result): void {
  const durationMs = monotonicNow() - startedAt;
  const error = "error" in result ? result.error : undefined;
  handlerEnds.publish(Object.assign(message, { durationMs, outcome: result.kind, error }) satisfies HandlerEndMessage);
}

type Settled = Pick<Lease, "id"> & Partial<Pick<Job<unknown>, "jobId" | "attempt">>;

export function settled(queue: string, delivery: Settled, settlement: Settlement, state: JobState): void {
  if (!settlements.hasSubscribers) return;
  const message: Writable<SettleMessage> = {
    queue,
    id: delivery.id,
    jobId: delivery.jobId,
    attempt: delivery.attempt,
    outcome: "released",
    delayMs: undefined,
    reason: undefined,
    category: undefined,
    lastError: "lastError" in settlement ? settlement.lastError : undefined,
  };
  if (state === "acked") message.outcome = "acked";
  else if (state === "failed") {
    message.outcome = "failed";
    message.reason = reasonOf(settlement);
    if (settlement.event === "fail") message.category = settlement.category;
  } else if (settlement.event === "nack") {
    message.outcome = "retried";
    message.delayMs = settlement.delayMs;
  }
  settlements.publish(message);
}

/** Why a settlement after which the job has failed made it a dead letter. */
export function reasonOf(settlement: Settlement): FailureReason {
  switch (settlement.event) {
    case "fail":
      return settlement.reason;
    case "nack":
      return settlement.exhaustedReason;
    case "release":
      return settlement.backoff?.exhaustedReason ?? "retries_exhausted";
    case "ack":
      throw new TypeError("Nothing fails by an ack");
  }
}

export function leaseLost(queue: string, { id, jobId, attempt }: Settled): void {
  if (lostLeases.hasSubscribers) lostLeases.publish({ queue, id, jobId, attempt } satisfies LeaseLostMessage);
}

export function troubled(queue: string, error: unknown): void {
  if (errors.hasSubscribers) errors.publish({ queue, error } satisfies ErrorMessage);
}
