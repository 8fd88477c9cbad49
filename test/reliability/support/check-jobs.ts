import { type Asked, callsOf, groupBy, type Held, type Made } from "./calls.ts";
import type { FinalRow } from "./history.ts";

/** What was asked for, what was delivered, and what there is at the end. */
export interface Ledger {
  readonly calls: readonly Made[];
  readonly asked: readonly Asked[];
  readonly deliveries: ReadonlyMap<number, readonly Held[]>;
  readonly rows: readonly FinalRow[];
}

/** Whether every job that was asked for is there once, and nothing else: each invariant, and what breaks it. */
export function checkJobs(ledger: Ledger): string[] {
  return [...kept(ledger), ...invented(ledger), ...atMostOnce(ledger), ...allOrNothing(ledger), ...shaped(ledger)];
}

const jobName = ({ queue, payload }: { queue: string; payload: string }): string => `${payload} in ${queue}`;

/** Which jobs may have been deleted. */
function deletions({ calls, deliveries }: Ledger): (id: number, queue: string) => boolean {
  const real = calls.filter(({ outcome }) => outcome !== "fail");
  const removals = callsOf(real, "remove", "discard").filter(({ result }) => result.changed !== 0);
  const single = new Set(removals.map(({ call }) => call.id));
  // A slice of a purge that is repeated, because its COMMIT reported an error, may count nothing.
  const purged = new Set(callsOf(real, "purge").map(({ call }) => call.queue));
  const claims = callsOf(real, "claim");
  const unknown = new Set(claims.filter(({ outcome }) => outcome === "info").map(({ call }) => call.queue));
  const dropped = new Set(claims.flatMap(({ result }) => result.dropped ?? []));
  // What was never delivered cannot have finished.
  const mayBeFinished = (id: number, queue: string): boolean =>
    deliveries.has(id) || dropped.has(id) || unknown.has(queue);
  return (id, queue) => single.has(id) || (purged.has(queue) && mayBeFinished(id, queue));
}

function kept(ledger: Ledger): string[] {
  const rows = new Map(ledger.rows.map((row) => [row.id, row]));
  const mayBeDeleted = deletions(ledger);
  const ids = new Map<number, Asked>();
  return ledger.asked.flatMap((job) => {
    if (job.told === undefined) return [];
    const { id, inserted } = job.told;
    const row = rows.get(id);
    if (!inserted) {
      const same =
        row === undefined || (row.queue === job.queue && (isSame(row.jobId, job.jobId) || isSame(row.key, job.key)));
      return same ? [] : [`I10 deduplication: ${jobName(job)} was said to be job ${id}, which is ${jobName(row)}`];
    }
    const before = ids.get(id);
    ids.set(id, job);
    if (before) return [`I2 no invention: ${jobName(before)} and ${jobName(job)} both became job ${id}`];
    if (row !== undefined)
      return jobName(row) === jobName(job) ? [] : [`I2 no invention: job ${id} was ${jobName(job)}`];
    return mayBeDeleted(id, job.queue) ? [] : [`I1 no loss: ${jobName(job)}, which was job ${id}, is gone`];
  });
}

const isSame = (a: string | undefined, b: string | undefined): boolean => a !== undefined && a === b;

function invented({ asked, deliveries, rows }: Ledger): string[] {
  const wanted = groupBy(asked, jobName);
  const attempted = new Set(asked.map(({ payload }) => payload));
  const byId = new Map(rows.map((row) => [row.id, row]));
  const faults = rows.flatMap((row) => {
    const by = wanted.get(jobName(row));
    if (by === undefined) return [`I2 no invention: job ${row.id} is ${jobName(row)}, for which nobody asked`];
    const failed = by.every((job) => job.by.outcome === "fail");
    return failed ? [`I3 unknown put: ${jobName(row)} is there, but its put certainly failed`] : [];
  });
  const told = new Map(asked.flatMap(({ told: given, payload }) => (given?.inserted ? [[given.id, payload]] : [])));
  for (const held of [...deliveries.values()].flat()) {
    const real = byId.get(held.id)?.payload ?? told.get(held.id) ?? held.payload;
    const good = attempted.has(held.payload) && held.payload === real;
    if (!good) faults.push(`I2 no invention: job ${held.id} was delivered as ${held.payload}, and is ${real}`);
  }
  return faults;
}

function atMostOnce({ asked, rows }: Ledger): string[] {
  const wanted = groupBy(asked, jobName);
  const faults = [...groupBy(rows, jobName)].flatMap(([name, copies]) => {
    const puts = wanted.get(name)?.filter(({ by }) => by.outcome !== "fail").length ?? 0;
    return puts > 0 && copies.length > puts
      ? [`I3 unknown put: ${name} is there ${copies.length} times after ${puts} puts`]
      : [];
  });
  for (const part of ["jobId", "key"] as const) {
    const named = rows.filter((row) => row[part] !== undefined);
    for (const [name, copies] of groupBy(named, (row) => `${row[part]} in ${row.queue}`)) {
      if (copies.length > 1) faults.push(`I10 deduplication: ${copies.length} jobs have the ${part} ${name}`);
    }
  }
  return faults;
}

/** The jobs of one call are there together or not at all, and with an ack if that took effect. */
function allOrNothing(ledger: Ledger): string[] {
  const { calls, asked, rows, deliveries } = ledger;
  const known = new Set(asked.flatMap((job) => (job.told === undefined ? [] : [jobName(job)])));
  const inFile = new Set(rows.map(jobName));
  const seen = new Set([...deliveries.values()].flat().map((held) => `${held.payload} in ${held.claim.call.queue}`));
  const purged = new Set(callsOf(calls, "purge").map(({ call }) => call.queue));
  const anyRemoved = callsOf(calls, "remove", "discard").some(({ outcome }) => outcome !== "fail");
  const wanted = groupBy(asked, jobName);
  const isThere = (job: Asked): boolean => [known, inFile, seen].some((names) => names.has(jobName(job)));
  const ids = groupBy(asked, ({ queue, jobId }) => `${jobId} in ${queue}`);
  const keys = groupBy(asked, ({ queue, key }) => `${key} in ${queue}`);
  // Others may be there, or be missing, for another reason.
  const isTelling = (job: Asked): boolean =>
    wanted.get(jobName(job))?.length === 1 &&
    (job.jobId === undefined || ids.get(`${job.jobId} in ${job.queue}`)?.length === 1) &&
    (job.key === undefined || keys.get(`${job.key} in ${job.queue}`)?.length === 1) &&
    !purged.has(job.queue);
  return [...groupBy(asked, ({ by }) => by)].flatMap(([by, jobs]) => {
    const telling = jobs.filter(isTelling);
    const there = telling.filter(isThere).length;
    if (by.call.f === "settle" && by.outcome === "fail" && there > 0) {
      return [`I9 all or nothing: what ${by.call.receipt} emitted is there without its ack`];
    }
    const all = there === telling.length || anyRemoved;
    if (all || (there === 0 && by.outcome !== "ok")) return [];
    return [`I9 all or nothing: of ${telling.map(jobName).join(" and ")} only ${there} are there`];
  });
}

function shaped({ rows }: Ledger): string[] {
  return rows.flatMap(({ id, state, attempts, maxAttempts }) => {
    const delivered = state === "processing" || state === "acked";
    const possible = attempts >= (delivered ? 1 : 0) && attempts <= maxAttempts;
    return possible ? [] : [`I14 shape: job ${id} is ${state} after ${attempts} of ${maxAttempts} deliveries`];
  });
}
