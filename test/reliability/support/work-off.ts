import { readdirSync } from "node:fs";
import path from "node:path";
import { faultsOf } from "../../support/inspect.ts";
import { Program } from "../../support/program.ts";
import { nameOf } from "../programs/recorded-queue.mjs";
import { check, type Findings } from "./checker.ts";
import { finalRows } from "./drain.ts";
import { type Call, type Entry, readHistory } from "./history.ts";

export interface Scene {
  readonly location: string;
  /** The directory of the histories, one file per process. */
  readonly histories: string;
  readonly queues: readonly string[];
  /** Whether clocks were set. */
  readonly setClocks?: boolean;
}

/** Has a new process work off all that is left, once all faults are over, and holds what happened against the guarantees. */
export async function workOffAndCheck(scene: Scene, seconds = 60): Promise<Findings & { history: Entry[] }> {
  const program = new Program("../reliability/programs/drain.mjs", { ...scene, seconds });
  const { drained } = await program.hears("drained", (seconds + 30) * 1000);
  await program.ends();
  const history = historyOf(scene);
  const rows = finalRows(scene.location).map((row) => ({ ...row, payload: nameOf(row.payload) }));
  const clockSkewMs = scene.setClocks ? Number.POSITIVE_INFINITY : 0;
  const faults = faultsOf(scene.location);
  return { ...check({ history, rows, drained: drained === true, faults, clockSkewMs }), history };
}

/** What all processes have recorded so far. */
export function historyOf({ histories }: Pick<Scene, "histories">): Entry[] {
  const files = readdirSync(histories).filter((name) => name.endsWith(".jsonl"));
  return readHistory(...files.map((name) => path.join(histories, name)));
}

/** Throws unless the verdict is that all guarantees held. */
export function assertValid({ verdict, violations, unknowns }: Findings): void {
  if (verdict === "valid") return;
  const reasons = verdict === "invalid" ? violations : unknowns;
  throw new Error(`${verdict}: ${reasons.length} reasons\n${reasons.slice(0, 20).join("\n")}`);
}

/**
 * Calls that failed although nothing but processes failed. One that gives up waiting soon may fail where the lock is
 * somebody else's all that time: claims do, and puts into a queue with a limit.
 */
export function unexplained(history: readonly Entry[], impatient: (call: Call) => boolean): string[] {
  const calls = new Map<string, Call>(
    history.flatMap((entry) =>
      entry.type === "invoke" ? [[`${entry.process} #${entry.seq}`, entry.call] as const] : [],
    ),
  );
  const expected = ["lost", "NOT_FOUND", "FULL", "DEDUPLICATION_CONFLICT"];
  return history.flatMap((entry) => {
    if (entry.type === "invoke" || entry.type === "ok") return [];
    const name: string = `${entry.process} #${entry.of}`;
    const call = calls.get(name) as Call;
    const isExpected = expected.includes(entry.error) || (entry.error === "BUSY" && impatient(call));
    return entry.type === "fail" && isExpected ? [] : [`${name} ${call.f}: ${entry.type} ${entry.error}`];
  });
}
