import { readFileSync } from "node:fs";

/**
 * What a process asked for, and what came of it: one line of JSON per entry, appended with one write, so that it stays
 * whatever becomes of the process. An `invoke` without an answer is a call whose process died: nobody knows its outcome.
 */
export type Entry = Invoke | Ok | Failed;

interface EntryBase {
  /** Numbers the entries of a process. */
  readonly seq: number;
  /** The process: its id, or the name of a simulated one. */
  readonly process: string;
  /** Milliseconds on a clock that all processes share and nobody sets. */
  readonly mono: number;
  /** Milliseconds since the epoch, as the process sees it. */
  readonly wall: number;
}

export interface Invoke extends EntryBase {
  readonly type: "invoke";
  readonly call: Call;
}

export interface Ok extends EntryBase {
  readonly type: "ok";
  /** The `seq` of the call. */
  readonly of: number;
  readonly result: Result;
}

export interface Failed extends EntryBase {
  /** `fail`: certainly nothing happened. `info`: it may have. */
  readonly type: "fail" | "info";
  readonly of: number;
  /** The error's code: `lost` for a lease that was lost. */
  readonly error: string;
}

export type Call = PutCall | ClaimCall | SettleCall | ExtendCall | AlterCall | SweepCall;

/** All jobs in one transaction: `put`, `putMany`, `dispatch`. */
export interface PutCall {
  readonly f: "put";
  readonly jobs: readonly AskedJob[];
}

export interface AskedJob {
  readonly queue: string;
  /** What tells the job from all others: a text, or the hash of the payload. */
  readonly payload: string;
  readonly jobId?: string | undefined;
  /** What makes it the same event under another `jobId`. */
  readonly key?: string | undefined;
  readonly delayMs?: number | undefined;
  readonly maxAttempts?: number | undefined;
}

export interface ClaimCall {
  readonly f: "claim";
  readonly queue: string;
  readonly limit: number;
  readonly leaseMs: number;
  /** The lease is renewed by itself, nobody knows when. */
  readonly renews?: boolean | undefined;
}

export interface SettleCall {
  readonly f: "settle";
  readonly how: "ack" | "nack" | "fail" | "release";
  readonly id: number;
  readonly receipt: string;
  readonly delayMs?: number | undefined;
  /** What commits with an ack. */
  readonly emits?: readonly AskedJob[] | undefined;
}

export interface ExtendCall {
  readonly f: "extend";
  readonly id: number;
  readonly receipt: string;
  readonly ms: number;
}

/** One job: a waiting one is deleted, a dead letter replayed or deleted. */
export interface AlterCall {
  readonly f: "remove" | "replay" | "discard";
  readonly id: number;
}

/** Many jobs: finished ones are deleted, dead letters replayed. */
export interface SweepCall {
  readonly f: "purge" | "replayAll";
  readonly queue: string;
}

export type Result = Partial<PutResult & ClaimResult & SettleResult & ExtendResult & AlterResult>;

interface PutResult {
  /** In the order of the jobs. */
  readonly put: readonly { readonly id: number; readonly inserted: boolean }[];
}

interface ClaimResult {
  readonly deliveries: readonly Delivered[];
  /** Jobs that came too late for the program to begin: it dropped them without a word. */
  readonly dropped: readonly number[];
}

export interface Delivered {
  readonly id: number;
  readonly receipt: string;
  readonly payload: string;
  readonly attempt: number;
  /** Milliseconds since the epoch. */
  readonly leaseUntil: number;
}

interface SettleResult {
  readonly state: "ready" | "processing" | "acked" | "failed";
}

interface ExtendResult {
  readonly leaseUntil: number;
}

interface AlterResult {
  /** How many jobs were altered or deleted. */
  readonly changed: number;
}

/** A job as it is in the file at the end. */
export interface FinalRow {
  readonly id: number;
  readonly queue: string;
  readonly payload: string;
  readonly state: "ready" | "processing" | "acked" | "failed";
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly jobId?: string | undefined;
  readonly key?: string | undefined;
}

/** The histories of processes; the last line of one that was killed may be torn. */
export function readHistory(...files: readonly string[]): Entry[] {
  return files.flatMap((file) => {
    const lines = readFileSync(file, "utf8").split("\n");
    // Complete lines end with a newline: what follows the last one is torn, or nothing.
    return lines.slice(0, -1).map((line) => JSON.parse(line) as Entry);
  });
}
