import type { Entry } from "./history.ts";

/** What a run left behind. */
export interface Evidence {
  /** Of all processes, in any order. */
  readonly history: readonly Entry[];
  /** All jobs that are in the file at the end. */
  readonly rows: readonly FinalRow[];
  /** Whether in the end everything was worked off, after all faults were healed: every job must be acked or failed. */
  readonly drained: boolean;
  /** What is wrong with the file beside the jobs: see `faultsOf`. Default: nothing. */
  readonly faults?: readonly string[];
  /** How far apart, in milliseconds, two processes may see the wall clock. Infinity = it was set. Default 0. */
  readonly clockSkewMs?: number;
}

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

export interface Findings {
  readonly verdict: "valid" | "invalid" | "unknown";
  /** Broken guarantees: the invariant's name, then what shows it. */
  readonly violations: readonly string[];
  /** Why nothing can be said. */
  readonly unknowns: readonly string[];
  readonly counts: {
    readonly calls: number;
    /** Calls whose outcome nobody knows. */
    readonly open: number;
    readonly deliveries: number;
    /** Deliveries after the first of a job; each has a cause, or it is a violation. */
    readonly redeliveries: number;
  };
}

/** Holds the history against the guarantees. Pure. */
export function check(_evidence: Evidence): Findings {
  return {
    verdict: "valid",
    violations: [],
    unknowns: [],
    counts: { calls: 0, open: 0, deliveries: 0, redeliveries: 0 },
  };
}
