import { writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { tempDirectory } from "../support/temp.ts";
import { check, type Evidence, type Findings } from "./support/checker.ts";
import {
  type AskedJob,
  type Call,
  type FinalRow,
  type Result,
  readHistory,
  type SettleCall,
} from "./support/history.ts";
import { rowOf, Story } from "./support/story.ts";

const LEASE_MS = 1000;
const NEVER = Symbol("without an answer");
type Outcome = Result | "lost" | "failed" | "unknown" | typeof NEVER;

/** A history made by hand, in which each call takes 10 ms and an answer another 10. */
class Tale {
  now = 1_000_000;
  readonly story: Story = new Story(() => ({ mono: this.now, wall: this.now }));

  call(call: Call, outcome: Outcome, process = "p"): this {
    this.answer(this.begin(call, process), outcome, process);
    return this;
  }

  begin(call: Call, process = "p"): number {
    this.now += 10;
    return this.story.invoke(process, call);
  }

  answer(of: number, outcome: Outcome, process = "p"): this {
    this.now += 10;
    if (outcome === "lost") this.story.failed(process, of, "fail", "lost");
    else if (outcome === "failed") this.story.failed(process, of, "fail", "FULL");
    else if (outcome === "unknown") this.story.failed(process, of, "info", "IO");
    else if (outcome !== NEVER) this.story.ok(process, of, outcome);
    return this;
  }

  wait(ms: number): this {
    this.now += ms;
    return this;
  }

  /** Puts a job, which becomes number 1. */
  put(job: Partial<AskedJob> = {}, outcome: Outcome = { put: [{ id: 1, inserted: true }] }): this {
    return this.call({ f: "put", jobs: [{ ...work, ...job }] }, outcome);
  }

  claim(receipt: string, attempt = 1, change: { payload?: string; leaseUntil?: number } = {}, afterMs = 0): this {
    const of = this.begin({ f: "claim", queue: "q", limit: 1, leaseMs: LEASE_MS }, receipt);
    this.wait(afterMs);
    const delivered = { id: 1, receipt, payload: "work", attempt, leaseUntil: this.now + LEASE_MS, ...change };
    return this.answer(of, { deliveries: [delivered] }, receipt);
  }

  /** The lease of what it claims ends before it is answered. */
  claimTooSlowly(): this {
    const of = this.begin({ f: "claim", queue: "q", limit: 1, leaseMs: LEASE_MS }, "slow");
    return this.wait(LEASE_MS).answer(of, { deliveries: [] }, "slow");
  }

  settle(
    receipt: string,
    how: SettleCall["how"],
    outcome: Outcome = "lost",
    more: Partial<Pick<SettleCall, "emits" | "delayMs">> = {},
  ): this {
    return this.call({ f: "settle", how, id: 1, receipt, ...more }, outcome, receipt);
  }

  ack(receipt: string, outcome: Outcome = { state: "acked" }): this {
    return this.settle(receipt, "ack", outcome);
  }

  extend(receipt: string, ms: number, outcome: Outcome): this {
    return this.call({ f: "extend", id: 1, receipt, ms }, outcome, receipt);
  }

  ends(rows: readonly FinalRow[], evidence: Partial<Evidence> = {}): Findings {
    return check({ history: this.story.entries, rows, drained: true, ...evidence });
  }
}

const work: AskedJob = { queue: "q", payload: "work" };
const child: AskedJob = { queue: "q", payload: "child" };
const acked = (attempts = 1, change: Partial<FinalRow> = {}): FinalRow =>
  rowOf(1, work, { state: "acked", attempts, ...change });
const failed = (attempts: number, maxAttempts = 4): FinalRow =>
  rowOf(1, work, { state: "failed", attempts, maxAttempts });
const tale = (): Tale => new Tale();

/** Expects a violation of this invariant; what breaks one often breaks others with it. */
function expectBroken({ verdict, violations }: Findings, invariant: string): void {
  expect(verdict).toBe("invalid");
  expect(violations.map((violation) => violation.split(" ")[0])).toContain(invariant);
}

describe("a history is valid in which", () => {
  const good: Record<string, Findings> = {
    "a job is put, claimed and acknowledged": tale().put().claim("a").ack("a").ends([acked()]),
    "a put whose outcome is unknown had its effect": tale().put({}, "unknown").claim("a").ack("a").ends([acked()]),
    "a put whose outcome is unknown had none": tale().put({}, "unknown").ends([]),
    "a put failed": tale().put({}, "failed").ends([]),
    "a process died before it was answered": tale().put().claim("a").ack("a", NEVER).ends([acked()]),
    "a lease expired and another took over": tale()
      .put()
      .claim("a")
      .wait(LEASE_MS)
      .claim("b", 2)
      .ack("a", "lost")
      .ack("b")
      .ends([acked(2)]),
    "a job was given back, which takes its delivery back": tale()
      .put()
      .claim("a")
      .settle("a", "release", { state: "ready" })
      .claim("b", 1)
      .ack("b")
      .ends([acked(1)]),
    "a claim took so long that what it claimed was lost before anybody got it": tale()
      .put()
      .claimTooSlowly()
      .claim("a", 2)
      .ack("a")
      .ends([acked(2)]),
    "a claim took so long that it lost what it claimed, and claimed it again": tale()
      .put()
      .claim("a", 2, {}, LEASE_MS)
      .ack("a")
      .ends([acked(2)]),
    "a job failed after its last delivery": tale()
      .put({ maxAttempts: 1 })
      .claim("a")
      .wait(LEASE_MS)
      .ends([failed(1, 1)]),
    "an acknowledgement of unknown outcome took effect": tale().put().claim("a").ack("a", "unknown").ends([acked()]),
    "an acknowledgement of unknown outcome took none": tale()
      .put()
      .claim("a")
      .ack("a", "unknown")
      .wait(LEASE_MS)
      .claim("b", 2)
      .ack("b")
      .ends([acked(2)]),
    "an extended lease outlives the first one": tale()
      .put()
      .claim("a")
      .extend("a", 5000, { leaseUntil: 1_006_050 })
      .wait(4000)
      .ack("a")
      .ends([acked()]),
    "a dead letter was replayed": tale()
      .put()
      .claim("a")
      .settle("a", "fail", { state: "failed" })
      .call({ f: "replay", id: 1 }, { changed: 1 })
      .claim("b", 1)
      .ack("b")
      .ends([acked(1)]),
    "a job was removed": tale().put().call({ f: "remove", id: 1 }, { changed: 1 }).ends([]),
    "a job that came too late for its program to begin was given up, and purged": tale()
      .put()
      .call({ f: "claim", queue: "q", limit: 1, leaseMs: LEASE_MS }, { deliveries: [], dropped: [1] })
      .call({ f: "purge", queue: "q" }, { changed: 1 })
      .ends([]),
    "a finished job was purged": tale()
      .put()
      .claim("a")
      .ack("a")
      .call({ f: "purge", queue: "q" }, { changed: 1 })
      .ends([]),
    "a claim that nobody saw counts as a delivery": tale()
      .put()
      .call({ f: "claim", queue: "q", limit: 1, leaseMs: LEASE_MS }, NEVER, "dead")
      .wait(LEASE_MS)
      .claim("b", 2)
      .ack("b")
      .ends([acked(2)]),
    "the clock was set, and a lease ended early": tale()
      .put()
      .claim("a")
      .claim("b", 2)
      .ack("b")
      .ends([acked(2)], { clockSkewMs: Number.POSITIVE_INFINITY }),
    "what a handler emitted came with its ack": tale()
      .put()
      .claim("a")
      .settle("a", "ack", { state: "acked" }, { emits: [child] })
      .call({ f: "claim", queue: "q", limit: 1, leaseMs: LEASE_MS }, NEVER, "dead")
      .ends([acked(), rowOf(2, child, { state: "failed", attempts: 4 })]),
  };

  test.each(Object.entries(good))("%s", (_, findings) => {
    expect(findings).toMatchObject({ verdict: "valid", violations: [], unknowns: [] });
  });
});

describe("the oracle notices", () => {
  const bad: Record<string, [invariant: string, Findings]> = {
    "a confirmed job that is gone": ["I1", tale().put().ends([])],
    "a job that was never delivered and is gone after a purge": [
      "I1",
      tale().put().call({ f: "purge", queue: "q" }, { changed: 1 }).ends([]),
    ],
    "a job for which nobody asked": [
      "I2",
      tale()
        .put()
        .claim("a")
        .ack("a")
        .ends([acked(), rowOf(2, { queue: "q", payload: "?" }, { state: "failed", attempts: 4 })]),
    ],
    "a payload that became another": ["I2", tale().put().claim("a", 1, { payload: "wrok" }).ack("a").ends([acked()])],
    "a number that was given twice": ["I2", tale().put().put({ payload: "more" }).claim("a").ack("a").ends([acked()])],
    "an acknowledged job that nobody acknowledged": ["I2", tale().put().claim("a").ends([acked()])],
    "a put that is there twice": [
      "I3",
      tale()
        .put({}, "unknown")
        .ends([failed(4), { ...failed(4), id: 2 }]),
    ],
    "a put that certainly failed and is there": [
      "I3",
      tale()
        .put({}, "failed")
        .ends([failed(4)]),
    ],
    "two deliveries at the same time": [
      "I4",
      tale()
        .put()
        .claim("a")
        .claim("b", 2)
        .ack("b")
        .ends([acked(2)]),
    ],
    "a lease that another ended before its extension did": [
      "I4",
      tale()
        .put()
        .claim("a")
        .extend("a", 5000, { leaseUntil: 1_006_050 })
        .wait(LEASE_MS * 2)
        .claim("b", 2)
        .ack("b")
        .ends([acked(2)]),
    ],
    "a receipt that was given twice": [
      "I4",
      tale()
        .put()
        .claim("a")
        .wait(LEASE_MS)
        .claim("a", 2)
        .wait(LEASE_MS)
        .ends([failed(2, 2)]),
    ],
    "an ack after another took over": [
      "I5",
      tale()
        .put()
        .claim("a")
        .wait(LEASE_MS)
        .claim("b", 2)
        .ack("a")
        .wait(LEASE_MS)
        .ends([acked(2)]),
    ],
    "an ack after the lease": ["I5", tale().put().claim("a").wait(LEASE_MS).ack("a").ends([acked()])],
    "an extension after the lease": [
      "I5",
      tale()
        .put({ maxAttempts: 1 })
        .claim("a")
        .wait(LEASE_MS)
        .extend("a", 5, { leaseUntil: 1_001_100 })
        .wait(100)
        .ends([failed(1, 1)]),
    ],
    "an ack with a receipt that nobody was given": ["I5", tale().put().claim("a").ack("forged").ends([acked()])],
    "a holder who is refused": [
      "I5",
      tale()
        .put()
        .claim("a")
        .ack("a", "lost")
        .wait(LEASE_MS)
        .claim("b", 2)
        .ack("b")
        .ends([acked(2)]),
    ],
    "a delivery that ended twice": ["I6", tale().put().claim("a").ack("a").ack("a").ends([acked()])],
    "a job that failed and was acknowledged": [
      "I6",
      tale()
        .put()
        .claim("a")
        .settle("a", "fail", { state: "failed" })
        .settle("a", "ack", { state: "acked" })
        .ends([acked()]),
    ],
    "a delivery after the ack": [
      "I7",
      tale()
        .put()
        .claim("a")
        .ack("a")
        .wait(LEASE_MS)
        .claim("b", 2)
        .wait(LEASE_MS)
        .ends([acked(2)]),
    ],
    "an ack that was forgotten": [
      "I7",
      tale()
        .put()
        .claim("a")
        .ack("a")
        .ends([failed(4)]),
    ],
    "two deliveries with one number": [
      "I8",
      tale()
        .put()
        .claim("a")
        .wait(LEASE_MS)
        .claim("b", 1)
        .ack("b")
        .ends([acked(1)]),
    ],
    "a number that was left out": [
      "I8",
      tale()
        .put()
        .claim("a", 2)
        .ack("a")
        .ends([acked(2)]),
    ],
    "more deliveries than allowed": [
      "I8",
      tale()
        .put({ maxAttempts: 1 })
        .claim("a")
        .wait(LEASE_MS)
        .claim("b", 2)
        .wait(LEASE_MS)
        .ends([failed(1, 1)]),
    ],
    "a job that failed before its last delivery": [
      "I8",
      tale()
        .put()
        .claim("a")
        .wait(LEASE_MS)
        .ends([failed(1)]),
    ],
    "half a batch": [
      "I9",
      tale()
        .call({ f: "put", jobs: [work, { queue: "q", payload: "more" }] }, "unknown")
        .claim("a")
        .ack("a")
        .ends([acked()]),
    ],
    "what was emitted without its ack": [
      "I9",
      tale()
        .put()
        .claim("a")
        .wait(LEASE_MS)
        .settle("a", "ack", "lost", { emits: [child] })
        .claim("b", 2)
        .ack("b")
        .ends([acked(2), rowOf(2, child, { state: "failed", attempts: 4 })]),
    ],
    "an ack without what it emitted": [
      "I9",
      tale()
        .put()
        .claim("a")
        .settle("a", "ack", { state: "acked" }, { emits: [child] })
        .ends([acked()]),
    ],
    "two jobs of one name": [
      "I10",
      tale()
        .put({ jobId: "n" })
        .put({ jobId: "n", payload: "more" }, "unknown")
        .claim("a")
        .ack("a")
        .ends([acked(1, { jobId: "n" }), { ...failed(4), id: 2, payload: "more", jobId: "n" }]),
    ],
    "a job that is taken for another": [
      "I10",
      tale()
        .put()
        .put({ jobId: "n" }, { put: [{ id: 1, inserted: false }] })
        .claim("a")
        .ack("a")
        .ends([acked()]),
    ],
    "a delivery before its time": ["I12", tale().put({ delayMs: 500 }).claim("a").ack("a").ends([acked()])],
    "a retry before its time": [
      "I12",
      tale()
        .put()
        .claim("a")
        .settle("a", "nack", { state: "ready" }, { delayMs: 500 })
        .claim("b", 2)
        .ack("b")
        .ends([acked(2)]),
    ],
    "a lease that was short from the start": [
      "I13",
      tale().put().claim("a", 1, { leaseUntil: 1_000_500 }).ack("a").ends([acked()]),
    ],
    "a job that can have no such state": [
      "I14",
      tale()
        .put()
        .call({ f: "claim", queue: "q", limit: 1, leaseMs: 1 }, NEVER)
        .ack("a", NEVER)
        .ends([acked(0)]),
    ],
    "a damaged file": [
      "I16",
      tale()
        .put()
        .claim("a")
        .ack("a")
        .ends([acked()], { faults: ["row 7 is missing"] }),
    ],
    "a job that nothing ends": [
      "L1",
      tale()
        .put()
        .ends([rowOf(1, work)]),
    ],
  };

  test.each(Object.entries(bad))("%s", (_, [invariant, findings]) => {
    expectBroken(findings, invariant);
  });
});

test("what was not worked off to the end proves nothing", () => {
  const findings = tale()
    .put()
    .ends([rowOf(1, work)], { drained: false });
  expect(findings).toMatchObject({ verdict: "unknown", violations: [] });
});

test("a history without calls, or with answers to nothing, proves nothing", () => {
  expect(tale().ends([])).toMatchObject({ verdict: "unknown" });
  expect(tale().put().answer(99, { put: [] }).claim("a").ack("a").ends([acked()])).toMatchObject({
    verdict: "unknown",
  });
  const twice = tale().put();
  twice.answer(1, { put: [{ id: 1, inserted: true }] });
  expect(twice.claim("a").ack("a").ends([acked()])).toMatchObject({ verdict: "unknown" });
});

test("deliveries after the first are counted", () => {
  const findings = tale()
    .put()
    .claim("a")
    .wait(LEASE_MS)
    .claim("b", 2)
    .ack("b", NEVER)
    .ends([acked(2)]);
  expect(findings.counts).toEqual({ calls: 4, open: 1, deliveries: 2, redeliveries: 1 });
});

test("a history is read up to the line that a killed process could not finish", () => {
  const file = path.join(tempDirectory(), "history");
  const { entries } = tale().put().story;
  writeFileSync(file, `${entries.map((entry) => JSON.stringify(entry)).join("\n")}\n{"seq":3,"proc`);
  expect(readHistory(file)).toEqual(entries);
});
