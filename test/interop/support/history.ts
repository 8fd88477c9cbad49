import { readFileSync } from "node:fs";

/** What a process wrote down about an operation: before it, and when it knew the outcome. */
export interface HistoryRecord {
  readonly type: "invoke" | "ok" | "refused" | "unknown";
  readonly op: "put" | "claim" | "ack" | "nack" | "fail";
  /** When, in microseconds of a clock that all processes share. */
  readonly us: number;
  /** When, by the wall clock. */
  readonly ms: number;
  readonly job?: string;
  readonly id?: number;
  /** 1 at the first delivery. */
  readonly attempt?: number;
  readonly receipt?: string;
}

/** What one process did, in order. */
export interface ProcessHistory {
  readonly name: string;
  readonly language: "node" | "python";
  readonly killed: boolean;
  readonly records: readonly HistoryRecord[];
}

/** A job at the end, as it is in the file. */
export interface FinalRow {
  readonly id: number;
  readonly job: string;
  readonly does: "ack" | "nack" | "nack once" | "fail";
  readonly status: number;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly reason: string | null;
  readonly availableAt: number;
}

export interface Expectations {
  readonly jobs: readonly string[];
  readonly rows: readonly FinalRow[];
  /** How many deliveries may have come to nothing because a process was killed. */
  readonly lostDeliveries: number;
}

interface Delivery extends Required<Pick<HistoryRecord, "job" | "id" | "attempt" | "receipt" | "us">> {
  readonly by: string;
  readonly language: ProcessHistory["language"];
  /** When the claim began, if that is known. */
  readonly since: HistoryRecord | undefined;
  settlement: { readonly op: string; readonly since: number | undefined; readonly us: number } | undefined;
}

const [ACKED, FAILED] = [2, 3];

/** The records of a file; whatever a process was writing when it was killed does not count. */
export function readHistory(file: string): HistoryRecord[] {
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line) as HistoryRecord);
}

/** In what the histories contradict what a queue promises; empty if in nothing. */
export function contradictions(processes: readonly ProcessHistory[], expected: Expectations): string[] {
  const deliveries = processes.flatMap(deliveriesIn);
  return [
    ...lossesIn(processes, expected),
    ...wrongEnds(expected.rows),
    ...repetitions(deliveries, expected.rows),
    ...surplus(processes, deliveries, expected),
    ...disorder(deliveries, expected.rows),
  ];
}

/** How many operations were under way when their processes were killed. */
export function interrupted(processes: readonly ProcessHistory[]): number {
  return processes.filter(({ killed, records }) => killed && records.at(-1)?.type === "invoke").length;
}

/** What was delivered to a process, with what became of that as far as the process knew. */
export function deliveriesIn({ name, language, records }: ProcessHistory): Delivery[] {
  const deliveries: Delivery[] = [];
  const held = new Map<string, Delivery>();
  const since = new Map<string, HistoryRecord>();
  for (const record of records) {
    const { op, type, job = "", id = 0, attempt = 0, receipt = "", us } = record;
    const operation = `${op} ${receipt}`;
    if (type === "invoke") since.set(operation, record);
    if (type !== "ok" || op === "put") continue;
    if (op === "claim") {
      const begun = since.get("claim ");
      const delivery = { job, id, attempt, receipt, us, by: name, language, since: begun, settlement: undefined };
      deliveries.push(delivery);
      held.set(receipt, delivery);
      continue;
    }
    const delivery = held.get(receipt);
    if (delivery === undefined) throw new Error(`${name} settled what it did not have: ${JSON.stringify(record)}`);
    delivery.settlement = { op, since: since.get(operation)?.us, us };
  }
  return deliveries;
}

/** Every job is there once, and every put that was confirmed is one of them. */
function lossesIn(processes: readonly ProcessHistory[], { jobs, rows }: Expectations): string[] {
  const idOf = new Map(rows.map(({ job, id }) => [job, id]));
  const found = jobs.filter((job) => !idOf.has(job)).map((job) => `${job} is not there`);
  if (rows.length !== idOf.size) found.push(`${rows.length} rows for ${idOf.size} jobs`);
  const puts = processes.flatMap(({ records }) => records.filter(({ op, type }) => op === "put" && type === "ok"));
  for (const { job = "", id } of puts) {
    if (idOf.get(job) !== id) found.push(`${job} was confirmed as ${id}, and is ${idOf.get(job)}`);
  }
  return found;
}

/** Each job ended as it was to end, or because its deliveries were used up. */
function wrongEnds(rows: readonly FinalRow[]): string[] {
  const isRight = ({ does, status, reason, attempts, maxAttempts }: FinalRow): boolean => {
    const isExhausted = status === FAILED && reason === "retries_exhausted" && attempts === maxAttempts;
    if (does === "fail") return (status === FAILED && reason !== "retries_exhausted") || isExhausted;
    return (status === ACKED && does !== "nack") || isExhausted;
  };
  return rows.filter((row) => !isRight(row)).map((row) => `a wrong end: ${JSON.stringify(row)}`);
}

/** A delivery is one process's, a job is delivered `maxAttempts` times at most, one after the other, and not when it is done. */
function repetitions(deliveries: readonly Delivery[], rows: readonly FinalRow[]): string[] {
  const found: string[] = [];
  const told = (delivery: Delivery): string => JSON.stringify(delivery);
  const receipts = new Set(deliveries.map(({ receipt }) => receipt));
  if (receipts.size !== deliveries.length) found.push(`${receipts.size} receipts for ${deliveries.length} deliveries`);
  const ofJob = groupBy(deliveries, ({ id }) => id);
  for (const row of rows) {
    const ordered = (ofJob.get(row.id) ?? []).toSorted((a, b) => a.attempt - b.attempt);
    const last = ordered.at(-1);
    if (row.attempts > row.maxAttempts) found.push(`delivered too often: ${JSON.stringify(row)}`);
    if (last !== undefined && last.attempt > row.attempts) found.push(`more than was counted: ${told(last)}`);
    if (last === undefined && row.attempts === 0) found.push(`never delivered: ${JSON.stringify(row)}`);
    const ends = ordered.filter(({ settlement }) => settlement !== undefined && settlement.op !== "nack");
    if (ends.length > 1) found.push(`settled twice: ${ends.map(told).join(" ")}`);
    for (const [index, delivery] of ordered.entries()) {
      const next = ordered[index + 1];
      if (next === undefined) continue;
      if (next.attempt === delivery.attempt) found.push(`delivered to two: ${told(delivery)} ${told(next)}`);
      const { settlement } = delivery;
      if (settlement === undefined) continue;
      if (settlement.op !== "nack") found.push(`delivered when it was done: ${told(delivery)} ${told(next)}`);
      if (settlement.since !== undefined && next.us < settlement.since) {
        found.push(`delivered to another while it was held: ${told(delivery)} ${told(next)}`);
      }
    }
  }
  return found;
}

/** Every further delivery has its cause: it was given back, its lease was lost, or its process was killed. */
function surplus(
  processes: readonly ProcessHistory[],
  deliveries: readonly Delivery[],
  expected: Expectations,
): string[] {
  const counted = expected.rows.reduce((sum, { attempts }) => sum + attempts, 0);
  const givenBack = deliveries.filter(({ settlement }) => settlement?.op === "nack").length;
  const unsure = processes
    .flatMap(({ records }) => records)
    .filter(
      ({ op, type }) => (op === "nack" && type === "unknown") || (op !== "put" && op !== "claim" && type === "refused"),
    ).length;
  const explained = givenBack + unsure + expected.lostDeliveries;
  const further = counted - expected.rows.length;
  return further > explained ? [`${further} further deliveries, only ${explained} of them with a cause`] : [];
}

/**
 * A claim takes the lowest id that is ready. So what is delivered for the first time has a higher id than everything
 * that was claimed before, with one exception: a Python process reads the clock before it waits for the lock, and does
 * not see what was put after that.
 */
function disorder(deliveries: readonly Delivery[], rows: readonly FinalRow[]): string[] {
  const availableAt = new Map(rows.map(({ id, availableAt }) => [id, availableAt]));
  const overtook = (claim: Delivery, id: number): boolean => {
    const saw = claim.language === "node" || (claim.since?.ms ?? 0) >= (availableAt.get(id) ?? 0);
    return claim.id > id && saw;
  };
  const found: string[] = [];
  const report = (claim: Delivery, first: Delivery): void => {
    found.push(`out of order: ${JSON.stringify(claim)} before ${JSON.stringify(first)}`);
  };
  for (const own of groupBy(deliveries, ({ by }) => by).values()) {
    let highest: Delivery | undefined;
    for (const delivery of own) {
      if (highest !== undefined && delivery.attempt === 1 && overtook(highest, delivery.id)) report(highest, delivery);
      if (highest === undefined || delivery.id > highest.id) highest = delivery;
    }
  }
  const bySince = deliveries
    .filter(({ since, attempt }) => since !== undefined && attempt === 1)
    .toSorted((a, b) => (a.since?.us ?? 0) - (b.since?.us ?? 0));
  const byEnd = deliveries.toSorted((a, b) => a.us - b.us);
  let [ended, highest] = [0, 0];
  for (const first of bySince) {
    const begun = first.since?.us ?? 0;
    for (let next = byEnd[ended]; next !== undefined && next.us < begun; next = byEnd[++ended]) {
      highest = Math.max(highest, next.id);
    }
    if (highest <= first.id) continue;
    const claim = byEnd.slice(0, ended).find((earlier) => overtook(earlier, first.id));
    if (claim !== undefined) report(claim, first);
  }
  return found;
}

function groupBy<Key, Value>(values: readonly Value[], keyOf: (value: Value) => Key): Map<Key, Value[]> {
  const groups = new Map<Key, Value[]>();
  for (const value of values) {
    const group = groups.get(keyOf(value));
    if (group === undefined) groups.set(keyOf(value), [value]);
    else group.push(value);
  }
  return groups;
}
