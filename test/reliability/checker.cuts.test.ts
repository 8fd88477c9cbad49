import { beforeEach, describe, expect, test } from "vitest";
import { type AfterCut, checkCut } from "./support/check-cut.ts";
import type { FinalRow } from "./support/history.ts";
import { rowOf, Story } from "./support/story.ts";

let time = 0;
let durable: Story;
let relaxed: Story;

beforeEach(() => {
  durable = new Story(() => ({ mono: ++time, wall: time }));
  relaxed = new Story(() => ({ mono: ++time, wall: time }));
});

function put(story: Story, ...payloads: string[]): number {
  const jobs = payloads.map((payload) => ({ queue: "q", payload }));
  return story.invoke("p", { f: "put", jobs });
}

function putOk(story: Story, id: number, payload: string): void {
  story.ok("p", put(story, payload), { put: [{ id, inserted: true }] });
}

function claimOk(story: Story, id: number): void {
  const of = story.invoke("p", { f: "claim", queue: "q", limit: 1, leaseMs: 1 });
  story.ok("p", of, { deliveries: [{ id, receipt: `r${id}`, payload: "?", attempt: 1, leaseUntil: 0 }] });
}

function ackOk(story: Story, id: number): void {
  const of = story.invoke("p", { f: "settle", how: "ack", id, receipt: `r${id}` });
  story.ok("p", of, { state: "acked" });
}

function row(id: number, payload: string, changes: Partial<FinalRow> = {}): FinalRow {
  return rowOf(id, { queue: "q", payload }, changes);
}

function leaves(...rows: FinalRow[]): ReturnType<typeof checkCut> {
  const cut: AfterCut = { durable: durable.entries, relaxed: relaxed.entries, rows };
  return checkCut(cut);
}

describe("a power cut that", () => {
  test("loses nothing, or the end of what was not flushed, is as it should be", () => {
    putOk(durable, 1, "a");
    putOk(relaxed, 2, "b");
    claimOk(relaxed, 1);
    ackOk(relaxed, 1);
    const acked = { attempts: 1, state: "acked" } as const;
    expect(leaves(row(1, "a", acked), row(2, "b"))).toEqual({ violations: [], acknowledged: 4, lost: 0 });
    expect(leaves(row(1, "a"), row(2, "b"))).toEqual({ violations: [], acknowledged: 4, lost: 2 });
    expect(leaves(row(1, "a"))).toEqual({ violations: [], acknowledged: 4, lost: 3 });
  });

  test("keeps a call without an answer, or does not, is as it should be", () => {
    put(durable, "a", "b");
    expect(leaves().violations).toEqual([]);
    expect(leaves(row(1, "a"), row(2, "b")).violations).toEqual([]);
  });

  test("loses what was flushed is found", () => {
    putOk(durable, 1, "a");
    expect(leaves().violations).toEqual([expect.stringContaining("I7 durability")]);
  });

  test("loses an acknowledgement that was flushed is found", () => {
    putOk(durable, 1, "a");
    claimOk(durable, 1);
    ackOk(durable, 1);
    const violations = leaves(row(1, "a", { attempts: 1, state: "processing" })).violations;
    expect(violations).toEqual([expect.stringContaining("I7 durability: the settle")]);
  });

  test("loses something in the middle is found", () => {
    putOk(relaxed, 1, "a");
    putOk(relaxed, 2, "b");
    expect(leaves(row(2, "b")).violations).toEqual([expect.stringContaining("I17 prefix")]);
  });

  test("keeps half of a call is found", () => {
    put(relaxed, "a", "b");
    expect(leaves(row(1, "a")).violations).toEqual([expect.stringContaining("I9 all or nothing")]);
  });

  test("keeps what was said to have failed is found", () => {
    durable.failed("p", put(durable, "a"), "fail", "IO");
    expect(leaves(row(1, "a")).violations).toEqual([expect.stringContaining("I3 certain failure")]);
  });

  test("gives a job another number is found", () => {
    putOk(relaxed, 1, "a");
    expect(leaves(row(2, "a")).violations).toEqual([expect.stringContaining("I2 no invention")]);
  });

  test("brings what nobody put is found", () => {
    expect(leaves(row(1, "a")).violations).toEqual([expect.stringContaining("I2 no invention")]);
  });
});
