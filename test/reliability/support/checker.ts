import { asked, callsOf, deliveriesByJob, groupBy, type Held, type Made, pairUp } from "./calls.ts";
import { checkDeliveries, type JobStory, replaysOf } from "./check-deliveries.ts";
import { checkJobs, type Ledger } from "./check-jobs.ts";
import type { ClaimCall, Entry, FinalRow } from "./history.ts";

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
export function check(evidence: Evidence): Findings {
  const { history, rows, drained, faults = [], clockSkewMs = 0 } = evidence;
  const { calls, faults: nonsense } = pairUp(history);
  const deliveries = deliveriesByJob(calls);
  const ledger = { calls, asked: asked(calls), deliveries, rows };
  const left = rows.filter(({ state }) => state === "ready" || state === "processing");
  const violations = [
    ...checkJobs(ledger),
    ...checkReceipts([...deliveries.values()].flat()),
    ...storiesOf(ledger, clockSkewMs).flatMap(checkDeliveries),
    ...(drained ? left.map(({ id, state }) => `L1 everything ends: job ${id} is still ${state}`) : []),
    ...faults.map((fault) => `I16 file: ${fault}`),
  ];
  const unknowns = [...nonsense, ...(drained ? [] : ["it was not worked off to the end"])];
  if (calls.length === 0) unknowns.push("nothing was done");
  const numbers = [...deliveries.values()].map(({ length }) => length);
  const total = numbers.reduce((sum, n) => sum + n, 0);
  return {
    verdict: violations.length > 0 ? "invalid" : unknowns.length > 0 ? "unknown" : "valid",
    violations,
    unknowns,
    counts: {
      calls: calls.length,
      open: calls.filter(({ outcome }) => outcome === "info").length,
      deliveries: total,
      redeliveries: total - numbers.length,
    },
  };
}

function storiesOf({ calls, asked: jobs, deliveries, rows }: Ledger, skewMs: number): JobStory[] {
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const put = new Map(jobs.flatMap((job) => (job.told?.inserted ? [[job.told.id, job] as const] : [])));
  const settles = groupBy(callsOf(calls, "settle"), ({ call }) => call.id);
  const lost = callsOf(calls, "claim").filter((claim) => claim.outcome === "info" || mayHaveLostSome(claim));
  const unknownQueues = new Set(lost.map(({ call }) => call.queue));
  const replays = callsOf(calls, "replay", "replayAll");
  return [...new Set([...rowOf.keys(), ...put.keys(), ...deliveries.keys(), ...settles.keys()])].map((id) => {
    const row = rowOf.get(id);
    const queue = row?.queue ?? put.get(id)?.queue ?? deliveries.get(id)?.[0]?.claim.call.queue ?? "";
    return {
      id,
      queue,
      deliveries: deliveries.get(id) ?? [],
      settles: settles.get(id) ?? [],
      asked: put.get(id),
      row,
      replays: replaysOf(replays, id, queue),
      unknownClaims: unknownQueues.has(queue),
      skewMs,
    };
  });
}

/**
 * A claim that took so long that what it claimed was lost again before anybody got it: that counts as a delivery. It may
 * have waited on, and have got something else.
 */
function mayHaveLostSome({ call, start, end }: Made<ClaimCall>): boolean {
  return end.wall - start.wall > call.leaseMs / 2;
}

function checkReceipts(deliveries: readonly Held[]): string[] {
  const twice = [...groupBy(deliveries, ({ receipt }) => receipt)].filter(([, { length }]) => length > 1);
  const tooMany = [...groupBy(deliveries, ({ claim }) => claim)].filter(
    ([{ call }, { length }]) => length > call.limit,
  );
  return [
    ...twice.map(([receipt]) => `I4 exclusive lease: the receipt ${receipt} was given twice`),
    ...tooMany.map(([{ call }, { length }]) => `I4 exclusive lease: a claim of ${call.limit} got ${length}`),
  ];
}
