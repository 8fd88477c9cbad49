import type {
  AskedJob,
  Call,
  ClaimCall,
  Delivered,
  Entry,
  ExtendCall,
  Failed,
  Invoke,
  Ok,
  PutCall,
  Result,
  SettleCall,
} from "./history.ts";

/** A point in time, on both clocks. */
export interface Moment {
  readonly mono: number;
  readonly wall: number;
}

/** A call and what is known of its outcome: `info` if it may have had its effect or not. */
export interface Made<C extends Call = Call> {
  readonly call: C;
  readonly outcome: "ok" | "fail" | "info";
  readonly result: Result;
  readonly error: string | undefined;
  /** Its effect lies between the two; without an answer the end is never. */
  readonly start: Moment;
  readonly end: Moment;
}

/** A delivery, and what its holder did with it. */
export interface Held extends Delivered {
  readonly claim: Made<ClaimCall>;
  readonly settles: readonly Made<SettleCall>[];
  readonly extensions: readonly Made<ExtendCall>[];
}

/** A job that somebody asked for, and by which call. */
export interface Asked extends AskedJob {
  readonly by: Made<PutCall | SettleCall>;
  /** What the call told of it; a handler is not told the ids of what it emits. */
  readonly told: { readonly id: number; readonly inserted: boolean } | undefined;
}

const NEVER: Moment = { mono: Number.POSITIVE_INFINITY, wall: Number.POSITIVE_INFINITY };

/** The calls of a history. `faults` tells what makes no sense in it: then nothing can be concluded. */
export function pairUp(history: readonly Entry[]): { calls: Made[]; faults: string[] } {
  const faults: string[] = [];
  const invokes = new Map<string, Invoke>();
  const answers = new Map<string, Ok | Failed>();
  for (const entry of history) {
    const isCall = entry.type === "invoke";
    const name = `${entry.process} #${isCall ? entry.seq : entry.of}`;
    if ((isCall ? invokes : answers).has(name)) faults.push(`${name} was ${isCall ? "made" : "answered"} twice`);
    if (isCall) invokes.set(name, entry);
    else answers.set(name, entry);
  }
  for (const name of answers.keys()) if (!invokes.has(name)) faults.push(`${name} was answered, but never made`);
  const calls = [...invokes].map(([name, start]): Made => {
    const end = answers.get(name);
    return {
      call: start.call,
      outcome: end?.type ?? "info",
      result: end?.type === "ok" ? end.result : {},
      error: end === undefined || end.type === "ok" ? undefined : end.error,
      start,
      end: end ?? NEVER,
    };
  });
  return { calls, faults };
}

/** The calls of some kinds. */
type CallOf<F extends Call["f"], C extends Call = Call> = C extends Call
  ? F & C["f"] extends never
    ? never
    : C
  : never;

export function callsOf<F extends Call["f"]>(calls: readonly Made[], ...kinds: F[]): Made<CallOf<F>>[] {
  return calls.filter((made): made is Made<CallOf<F>> => (kinds as string[]).includes(made.call.f));
}

/** Every job that was asked for. */
export function asked(calls: readonly Made[]): Asked[] {
  const puts = callsOf(calls, "put").flatMap((by) =>
    by.call.jobs.map((job, i) => ({ ...job, by, told: by.result.put?.[i] })),
  );
  const emitted = callsOf(calls, "settle").flatMap((by) =>
    (by.call.emits ?? []).map((job) => ({ ...job, by, told: undefined })),
  );
  return [...puts, ...emitted];
}

/** Every delivery that somebody got, by the job's id. */
export function deliveriesByJob(calls: readonly Made[]): Map<number, Held[]> {
  const settles = groupBy(callsOf(calls, "settle"), ({ call }) => call.receipt);
  const extensions = groupBy(callsOf(calls, "extend"), ({ call }) => call.receipt);
  const held = callsOf(calls, "claim").flatMap((claim) =>
    (claim.result.deliveries ?? []).map((delivered) => ({
      ...delivered,
      claim,
      settles: settles.get(delivered.receipt) ?? [],
      extensions: extensions.get(delivered.receipt) ?? [],
    })),
  );
  return groupBy(held, ({ id }) => id);
}

export function groupBy<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}
