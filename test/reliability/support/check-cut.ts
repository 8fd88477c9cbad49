import { asked, callsOf, type Made, pairUp } from "./calls.ts";
import type { Entry, FinalRow } from "./history.ts";

/** What a power cut left. Jobs were put, claimed and acknowledged, each by one call, and all have a payload of their own. */
export interface AfterCut {
  /** Of processes that flush each commit to the disk, and of those that do not. */
  readonly durable: readonly Entry[];
  readonly relaxed: readonly Entry[];
  readonly rows: readonly FinalRow[];
}

export interface CutFindings {
  readonly violations: readonly string[];
  /** Calls that had been acknowledged. */
  readonly acknowledged: number;
  /** And how many of them are not in the file. */
  readonly lost: number;
}

/** A call, and whether its effect is in the file. */
interface Effect {
  readonly made: Made;
  readonly isThere: boolean;
  readonly mustBeThere: boolean;
}

/**
 * What is in the file must be what some first part of the commits left, and what was flushed must be in it. Of two calls
 * the commit of one is certainly the earlier one if it was answered before the other began.
 */
export function checkCut({ durable, relaxed, rows }: AfterCut): CutFindings {
  const byPayload = new Map(rows.map((row) => [row.payload, row]));
  const byId = new Map(rows.map((row) => [row.id, row]));
  const effectsOf = (history: readonly Entry[], flushes: boolean): Effect[] => {
    const { calls } = pairUp(history);
    const puts = callsOf(calls, "put").map((made) => {
      return { made, parts: made.call.jobs.map(({ payload }) => byPayload.has(payload)) };
    });
    const claims = callsOf(calls, "claim").map((made) => {
      const deliveries = made.result.deliveries ?? [];
      return { made, parts: deliveries.map(({ id, attempt }) => (byId.get(id)?.attempts ?? 0) >= attempt) };
    });
    const acks = callsOf(calls, "settle").map((made) => {
      return { made, parts: [byId.get(made.call.id)?.state === "acked"] };
    });
    return [...puts, ...claims, ...acks].flatMap(({ made, parts }) => {
      const isThere = parts.some(Boolean);
      if (isThere && !parts.every(Boolean)) halves.push(made);
      return parts.length === 0 ? [] : [{ made, isThere, mustBeThere: flushes && made.outcome === "ok" }];
    });
  };
  const halves: Made[] = [];
  const jobs = asked([...pairUp(durable).calls, ...pairUp(relaxed).calls]);
  const effects = [...effectsOf(durable, true), ...effectsOf(relaxed, false)];
  const wanted = new Map(jobs.map((job) => [job.payload, job.told?.id]));
  const lastStart = Math.max(...effects.filter(({ isThere }) => isThere).map(({ made }) => made.start.mono));
  const lost = effects.filter(({ made, isThere }) => made.outcome === "ok" && !isThere);
  return {
    violations: [
      ...rows
        .filter(({ payload, id }) => !wanted.has(payload) || (wanted.get(payload) ?? id) !== id)
        .map(({ id }) => `I2 no invention: nobody put job ${id}, or was told so`),
      ...halves.map((made) => `I9 all or nothing: a part of ${nameOf(made)} is there`),
      ...effects
        .filter(({ made, isThere }) => made.outcome === "fail" && isThere)
        .map(({ made }) => `I3 certain failure: ${nameOf(made)} is there`),
      ...lost
        .filter(({ mustBeThere }) => mustBeThere)
        .map(({ made }) => `I7 durability: ${nameOf(made)} was flushed, and is gone`),
      ...lost
        .filter(({ made }) => made.end.mono < lastStart)
        .map(({ made }) => `I17 prefix: ${nameOf(made)} is gone, but something later is there`),
    ],
    acknowledged: effects.filter(({ made }) => made.outcome === "ok").length,
    lost: lost.length,
  };
}

function nameOf({ call, start }: Made): string {
  const what =
    call.f === "put" ? call.jobs.map(({ payload }) => payload).join(", ") : "id" in call ? `job ${call.id}` : "";
  return `the ${call.f} at ${start.mono}${what && ` of ${what}`}`;
}
