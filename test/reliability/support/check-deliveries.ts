import { type Asked, callsOf, type Held, type Made, type Moment } from "./calls.ts";
import type { AlterCall, FinalRow, SettleCall, SweepCall } from "./history.ts";

/** All that is known of one job. */
export interface JobStory {
  readonly id: number;
  readonly queue: string;
  readonly deliveries: readonly Held[];
  readonly settles: readonly Made<SettleCall>[];
  /** How it was put, if that is known. */
  readonly asked: Asked | undefined;
  readonly row: FinalRow | undefined;
  /** Calls that may have made a dead letter of it ready again. */
  readonly replays: readonly Made<AlterCall | SweepCall>[];
  /** Whether there are claims of its queue of which nobody knows what they claimed. */
  readonly unknownClaims: boolean;
  readonly skewMs: number;
}

/** What became of one job's deliveries: each invariant, and what breaks it. */
export function checkDeliveries(job: JobStory): string[] {
  return [
    ...exclusive(job),
    ...fenced(job),
    ...refusedForGood(job),
    ...finished(job),
    ...counted(job),
    ...notEarly(job),
    ...freshLeases(job),
  ].map((fault) => fault.replace(": ", `: job ${job.id} `));
}

const isReal = ({ outcome }: Made): boolean => outcome !== "fail";

/** Deliveries of a job count up for ever, except where it was replayed, or released: then two may have the same number. */
function follows(job: JobStory, later: Held, earlier: Held): boolean {
  if (later.claim.start.mono >= earlier.claim.end.mono) return true;
  return job.replays.length === 0 && later.attempt > earlier.attempt;
}

/** When, on the wall clock, the lease may have ended at the earliest, and at the latest; a call may be left out. */
function lease(held: Held, without?: Made): { earliest: number; latest: number } {
  const real = held.extensions.filter((made) => isReal(made) && made !== without);
  // Whoever renews by itself only makes it later.
  const set = real.map((made) => {
    const until = made.result.leaseUntil;
    const { ms } = made.call;
    return { made, min: until ?? made.start.wall + ms, max: until ?? made.end.wall + ms };
  });
  const superseded = (end: Moment): boolean =>
    real.some(({ outcome, start }) => outcome === "ok" && start.mono >= end.mono);
  const possible = set.filter(({ made }) => !superseded(made.end)).map(({ min }) => min);
  if (!superseded(held.claim.end)) possible.push(held.leaseUntil);
  return {
    earliest: Math.min(...possible),
    latest: held.claim.call.renews ? Number.POSITIVE_INFINITY : Math.max(held.leaseUntil, ...set.map(({ max }) => max)),
  };
}

/** Whether a delivery can have been over by then. */
function mayBeOver(job: JobStory, held: Held, by: Moment): boolean {
  if (held.settles.some((settle) => isReal(settle) && settle.start.mono <= by.mono)) return true;
  return lease(held).earliest <= by.wall + job.skewMs;
}

function exclusive(job: JobStory): string[] {
  return pairsOf(job.deliveries).flatMap(([a, b]) => {
    const aFirst = !follows(job, a, b) && mayBeOver(job, a, b.claim.end);
    const bFirst = !follows(job, b, a) && mayBeOver(job, b, a.claim.end);
    if (aFirst || bFirst) return [];
    return [`I4 exclusive lease: was delivered as ${a.receipt} and as ${b.receipt} at the same time`];
  });
}

function fenced(job: JobStory): string[] {
  const accepted = job.deliveries.flatMap((held) =>
    [...held.settles, ...held.extensions].flatMap((made) => {
      if (made.outcome !== "ok") return [];
      const newer = job.deliveries.find(
        (other) => other !== held && follows(job, other, held) && other.claim.end.mono <= made.start.mono,
      );
      if (newer) return [`I5 fencing: ${made.call.f} with ${held.receipt} was accepted after ${newer.receipt}`];
      const expired = lease(held, made).latest + job.skewMs < made.start.wall;
      return expired ? [`I5 fencing: ${made.call.f} with ${held.receipt} was accepted after its lease`] : [];
    }),
  );
  const receipts = new Set(job.deliveries.map(({ receipt }) => receipt));
  const forged = job.settles.filter(({ outcome, call }) => outcome === "ok" && !receipts.has(call.receipt));
  return [
    ...accepted,
    ...forged.map(({ call }) => `I5 fencing: ${call.how} with ${call.receipt} was accepted, which nobody was given`),
  ];
}

/** A lease that nobody ended and that did not expire is not refused. */
function refusedForGood(job: JobStory): string[] {
  return job.deliveries.flatMap((held) =>
    [...held.settles, ...held.extensions].flatMap((made) => {
      if (!(made.outcome === "fail" && made.error === "lost")) return [];
      return mayBeOver(job, held, made.end)
        ? []
        : [`I5 fencing: ${made.call.f} with ${held.receipt} was refused its holder`];
    }),
  );
}

function finished(job: JobStory): string[] {
  const faults: string[] = [];
  const { row } = job;
  for (const held of job.deliveries) {
    const ok = held.settles.filter(({ outcome }) => outcome === "ok");
    if (ok.length > 1) faults.push(`I6 single end: the delivery ${held.receipt} ended ${ok.length} times`);
  }
  const ends = job.deliveries.flatMap((held) =>
    held.settles.flatMap((settle) => (settle.outcome === "ok" && isTerminal(settle) ? [{ held, settle }] : [])),
  );
  const acks = ends.filter(({ settle }) => settle.call.how === "ack");
  if (acks.length > 1 || (job.replays.length === 0 && ends.length > 1)) {
    const how = ends.map(({ settle }) => settle.call.how).join(" and ");
    faults.push(`I6 single end: was finished ${ends.length} times, by ${how}`);
  }
  for (const { held, settle } of ends) {
    const acked = settle.call.how === "ack";
    if (!acked && job.replays.length > 0) continue;
    const again = job.deliveries.find(
      (other) => other !== held && (other.claim.start.mono >= settle.end.mono || other.attempt > held.attempt),
    );
    if (again && (job.replays.length === 0 || again.claim.start.mono >= settle.end.mono)) {
      faults.push(`I7 durable end: was delivered as ${again.receipt} after its ${settle.call.how}`);
    }
    const state = acked ? "acked" : "failed";
    if (row !== undefined && row.state !== state)
      faults.push(`I7 durable end: is ${row.state} after its ${settle.call.how}`);
  }
  if (row?.state === "acked" && !job.settles.some((made) => isReal(made) && made.call.how === "ack")) {
    faults.push("I2 no invention: is acked, but nobody acknowledged it");
  }
  const refused = job.settles.some((made) => isReal(made) && (made.call.how === "fail" || made.call.how === "nack"));
  if (row?.state === "failed" && !refused && row.attempts < row.maxAttempts) {
    faults.push(`I8 attempts: failed after ${row.attempts} of ${row.maxAttempts} deliveries, and nobody refused it`);
  }
  return faults;
}

function isTerminal({ call, result }: Made<SettleCall>): boolean {
  return call.how === "ack" || call.how === "fail" || result.state === "failed";
}

function counted(job: JobStory): string[] {
  const faults: string[] = [];
  const { row, asked } = job;
  const released = (held: Held): boolean => held.settles.some((made) => isReal(made) && made.call.how === "release");
  const most = row?.maxAttempts ?? asked?.maxAttempts ?? Number.POSITIVE_INFINITY;
  for (const { attempt, receipt } of job.deliveries) {
    if (attempt < 1 || attempt > most) faults.push(`I8 attempts: delivery ${receipt} is number ${attempt} of ${most}`);
  }
  if (job.replays.length > 0) return faults;
  for (const [a, b] of pairsOf(job.deliveries)) {
    if (a.attempt === b.attempt && !(released(a) || released(b))) {
      faults.push(`I8 attempts: the deliveries ${a.receipt} and ${b.receipt} both are number ${a.attempt}`);
    }
  }
  const numbers = [...new Set(job.deliveries.map(({ attempt }) => attempt))].sort((a, b) => a - b);
  const highest = numbers.at(-1) ?? 0;
  if (!job.unknownClaims && numbers.some((number, i) => number !== i + 1)) {
    faults.push(`I8 attempts: its deliveries are numbered ${numbers.join(", ")}`);
  }
  if (row === undefined) return faults;
  const given = job.deliveries.some((held) => held.attempt === highest && released(held)) ? 1 : 0;
  const tooFew = row.attempts < highest - given;
  const tooMany = !job.unknownClaims && row.attempts > highest;
  if (tooFew || tooMany) faults.push(`I8 attempts: has ${row.attempts} after delivery number ${highest}`);
  return faults;
}

function notEarly(job: JobStory): string[] {
  const { asked, skewMs } = job;
  const putAt = asked === undefined ? 0 : asked.by.start.wall + (asked.delayMs ?? 0);
  return job.deliveries.flatMap((held) => {
    const at = held.claim.end.wall + skewMs;
    if (at < putAt) return [`I12 not early: was delivered ${putAt - at} ms before its delay was over`];
    return job.deliveries.flatMap((earlier) => {
      if (earlier === held || !follows(job, held, earlier)) return [];
      const nack = earlier.settles.find(({ outcome, call }) => outcome === "ok" && call.how === "nack");
      const due = nack === undefined ? 0 : nack.start.wall + (nack.call.delayMs ?? 0);
      return job.replays.length === 0 && at < due
        ? [`I12 not early: was delivered ${due - at} ms too early again`]
        : [];
    });
  });
}

function freshLeases({ deliveries, skewMs }: JobStory): string[] {
  return deliveries.flatMap(({ claim, leaseUntil, receipt }) => {
    const { leaseMs } = claim.call;
    const short = leaseUntil + skewMs < claim.start.wall + leaseMs;
    const long = leaseUntil > claim.end.wall + leaseMs + skewMs;
    return short || long ? [`I13 fresh lease: the lease ${receipt} is too ${short ? "short" : "long"}`] : [];
  });
}

function pairsOf<T>(items: readonly T[]): [T, T][] {
  return items.flatMap((a, i) => items.slice(i + 1).map((b): [T, T] => [a, b]));
}

/** Calls that may have replayed a job. */
export function replaysOf(calls: readonly Made[], id: number, queue: string): Made<AlterCall | SweepCall>[] {
  const one = callsOf(calls, "replay").filter(({ call }) => call.id === id);
  const all = callsOf(calls, "replayAll").filter(({ call }) => call.queue === queue);
  return [...one, ...all].filter(isReal);
}
