import { STATES } from "../../../dist/state.js";
import { type TestClock, TestEngine } from "../../support/engine-harness.ts";
import { select } from "../../support/inspect.ts";
import type { FinalRow } from "./history.ts";
import type { Story } from "./story.ts";

/** Longer than any lease or delay that is left. */
const LONG_MS = 60_000;
const LEASE_MS = 10_000;

/** All faults are over: a fresh process works off everything. */
export function drain(directory: string, queues: readonly string[], clock: TestClock, story: Story): void {
  const engine = new TestEngine({ directory, clock, closedByCaller: true });
  for (const queue of queues) {
    for (let idle = 0; idle < 2; ) {
      const of = story.invoke("drain", { f: "claim", queue, limit: 5, leaseMs: LEASE_MS });
      const claim = engine.claim({ queue, limit: 5, leaseMs: LEASE_MS });
      engine.run();
      const deliveries = (claim.claimed ?? []).map((delivery) => ({ ...delivery, payload: engine.textOf(delivery) }));
      story.ok("drain", of, { deliveries });
      for (const { id, receipt } of deliveries) acknowledge(engine, queue, { id, receipt }, story);
      if (deliveries.length > 0) continue;
      idle++;
      engine.elapse(LONG_MS);
    }
  }
  engine.close();
}

function acknowledge(engine: TestEngine, queue: string, lease: { id: number; receipt: string }, story: Story): void {
  const of = story.invoke("drain", { f: "settle", how: "ack", ...lease });
  const call = engine.newCall();
  const origin = { session: 1, queue, fsync: false, text: false };
  engine.send([{ op: "settle", id: call.id, origin, lockMs: 1000, lease, move: { event: "ack" } }]);
  engine.run();
  if (call.answer?.settled === "acked") story.ok("drain", of, { state: "acked" });
  else story.failed("drain", of, "fail", "lost");
}

/** All jobs that are in the file. */
export function finalRows(directory: string): FinalRow[] {
  const rows = select(directory, "SELECT *, CAST(payload AS TEXT) AS text FROM messages ORDER BY id");
  return rows.map((row) => ({
    id: row["id"] as number,
    queue: row["queue"] as string,
    payload: row["text"] as string,
    state: STATES[row["status"] as number] as FinalRow["state"],
    attempts: row["attempts"] as number,
    maxAttempts: row["max_attempts"] as number,
    jobId: (row["job_id"] as string | null) ?? undefined,
    key: (row["dedup_key"] as string | null) ?? undefined,
  }));
}
