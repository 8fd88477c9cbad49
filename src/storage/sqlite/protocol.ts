import type { MessagePort } from "node:worker_threads";
import type { StorageErrorCode, StorageOutcome } from "../../errors.ts";
import type { JobState } from "../../state.ts";
import type { WarningCode } from "../../warning.ts";
import type { ConflictOnWire, Refused } from "../refusals.ts";
import type { ConsumerNews, LeaseNews } from "../slot-consumer.ts";
import type {
  Delivery,
  Enqueued,
  Envelope,
  FailedFilter,
  Lease,
  PurgeRequest,
  QueueStats,
  Settlement,
} from "../storage.ts";

/**
 * What the client and the engine thread say to each other. Durations cross, never points in time. How it is packed on
 * its way is the affair of `wire.ts`.
 */

/** Cells of the memory that both sides share. */
export const SIGNAL = {
  /** Counts messages and hints; the engine sleeps on it. */
  wake: 0,
  /** When the client was last seen alive, a `cellTime`. */
  tick: 1,
  /** Whether a watch on the directory is armed (see `WATCH`). */
  watch: 2,
  /** Set by the engine while it takes the client for stalled; the client's next tick wakes it. */
  stalled: 3,
  /** Whether the engine is to end (see `END`). */
  end: 4,
  /** 1 while the engine may be inside SQLite. */
  working: 5,
  /** Set when a message is about to come: the engine may wake up meanwhile. */
  coming: 6,
} as const;
export const SIGNALS = 7;

/** `closing`: as soon as nothing is left to do, and no longer waiting to open. `exiting`: at once, for good. */
export const END = { no: 0, closing: 1, exiting: 2 } as const;

export const WATCH = { off: 0, armed: 1, unavailable: 2 } as const;

/** What every thread of ours gets, beside data of its own. */
export interface ThreadData {
  readonly directory: string;
  readonly port: MessagePort;
  readonly signals: Int32Array;
}

/** What the commands of one storage object have in common. */
export interface Origin {
  /** Stands for the object; closing it withdraws what waits. */
  readonly session: number;
  readonly queue: string;
  readonly fsync: boolean;
  /** Whether claims are answered in text where that loses nothing. */
  readonly text: boolean;
  /** How many jobs may be ready or processing for this object to add more; absent = any number. */
  readonly maxPending?: number | undefined;
}

interface CommandBase {
  readonly origin: Origin;
  /** The client's number for it, free again once it is answered. */
  id: number;
  /** How long it may wait for the database's lock. */
  readonly lockMs: number;
}

export interface PutCommand extends CommandBase {
  readonly op: "put";
  readonly entries: readonly NewJob[];
  /** The payloads' size. */
  readonly bytes: number;
  /** How long to wait for room, where there is a limit: 0 = not at all, Infinity = for ever, or `CLOSING`. */
  waitMs?: number | undefined;
}

/** Instead of `waitMs`: there will be no more room for this command, because its queue closes. */
export const CLOSING = -1;

export interface NewJob {
  /** Bytes, or text to be stored as UTF-8. */
  readonly payload: Uint8Array | string;
  readonly jobId: string | null;
  readonly delayMs: number;
  readonly maxAttempts: number;
  /** The trace that the job belongs to, see `Entry`. */
  readonly context?: string | undefined;
}

export interface DispatchCommand extends CommandBase, NewEvents {
  readonly op: "dispatch";
}

export interface NewEvents {
  readonly events: readonly NewEvent[];
  /** The payloads' size, for each queue anew. */
  readonly bytes: number;
}

/** An envelope on its way to its queues. */
export interface NewEvent extends Omit<Envelope, "payload"> {
  /** Text to be stored as UTF-8, or such bytes. */
  readonly payload: Uint8Array | string;
}

export interface ClaimCommand extends CommandBase {
  readonly op: "claim";
  readonly limit: number;
  readonly leaseMs: number;
  /** How long to wait for work; 0 = look once, Infinity = for ever. */
  readonly waitMs: number;
  /** Set when the delivery is for a slot of a consumer. */
  readonly consumer?: number | undefined;
  readonly slot?: number | undefined;
}

export interface SettleCommand extends CommandBase {
  readonly op: "settle";
  readonly lease: Lease;
  readonly move: Settlement;
  /** What commits with an ack, taken out of the move. */
  readonly emit?: NewEvents | undefined;
}

export interface ExtendCommand extends CommandBase {
  readonly op: "extend";
  readonly lease: Lease;
  readonly ms: number;
}

export interface ReclaimCommand extends CommandBase {
  readonly op: "reclaim";
}

export interface StatsCommand extends CommandBase {
  readonly op: "stats";
}

/** One job by its id: a waiting one is deleted, a dead letter replayed or deleted. */
export interface AlterCommand extends CommandBase {
  readonly op: "alter";
  readonly verb: "remove" | "replay" | "discard";
  readonly job: number;
}

/** All jobs of a kind, in slices. */
export interface SweepCommand extends CommandBase {
  readonly op: "sweep";
  readonly sweep: SweepRequest;
}

export type SweepRequest =
  | ({ readonly kind: "purge" } & PurgeRequest)
  | ({ readonly kind: "purgeFailed" | "retryFailed" } & FailedFilter);

export type Command =
  | PutCommand
  | DispatchCommand
  | ClaimCommand
  | SettleCommand
  | ExtendCommand
  | ReclaimCommand
  | AlterCommand
  | SweepCommand
  | StatsCommand;

export type ToEngine =
  | { readonly kind: "batch"; readonly commands: readonly Command[] }
  | { readonly kind: "abort"; readonly id: number }
  | ConsumerNews
  | { readonly kind: "stopWaiting"; readonly session: number }
  | { readonly kind: "closeSession"; readonly session: number }
  | { readonly kind: "logMoved" }
  | { readonly kind: "shutdown" };

export type Answer =
  | { readonly id: number; readonly put: Enqueued[] }
  | { readonly id: number; readonly dispatched: Enqueued[][] }
  | { readonly id: number; readonly claimed: Delivery[] }
  | { readonly id: number; readonly settled: JobState }
  | { readonly id: number; readonly extended: number }
  | { readonly id: number; readonly reclaimed: number }
  | { readonly id: number; readonly changed: number }
  | { readonly id: number; readonly stats: QueueStats }
  | { readonly id: number; readonly refused: Refused }
  | { readonly id: number; readonly conflict: ConflictOnWire }
  | { readonly id: number; readonly error: ErrorOnWire };

/** The form of answer with the field `Form`. */
export type AnswerOf<Form extends string> = Extract<Answer, { readonly [F in Form]: unknown }>;

export interface ErrorOnWire {
  readonly code: StorageErrorCode;
  readonly message: string;
  readonly outcome: StorageOutcome;
  readonly cause: { readonly name: string; readonly message: string } | undefined;
}

/** A warning for the program: one that is emitted on the engine's thread would not be seen. */
export interface WarningOnWire {
  readonly code: WarningCode;
  readonly message: string;
}

export type FromEngine =
  | { readonly kind: "ready"; readonly warnings: readonly WarningOnWire[] }
  | { readonly kind: "unopened"; readonly error: ErrorOnWire }
  | {
      readonly kind: "reply";
      readonly answers: readonly Answer[];
      readonly news: readonly LeaseNews[];
      /** Batches whose commands have all been carried out or are waiting for work. */
      readonly batches: number;
      /** Asks for a watch on the directory. */
      readonly watch: boolean;
      /** Asks for the WAL to be moved into the database, beside the engine. */
      readonly moveLog: boolean;
    };
