import { expect, test } from "vitest";
import {
  contradictions,
  type FinalRow,
  type HistoryRecord,
  interrupted,
  type ProcessHistory,
} from "./support/history.ts";

let clock = 0;

function record(
  type: HistoryRecord["type"],
  op: HistoryRecord["op"],
  more: Partial<HistoryRecord> = {},
): HistoryRecord {
  clock += 10;
  return { type, op, us: clock, ms: 1_000 + clock, ...more };
}

/** A job is put, delivered and settled by a call each. */
function put(id: number): HistoryRecord[] {
  return [record("invoke", "put", { job: `job ${id}` }), record("ok", "put", { job: `job ${id}`, id })];
}

function claim(id: number, attempt = 1, receipt = `${id}/${attempt}`): HistoryRecord[] {
  return [record("invoke", "claim"), record("ok", "claim", { job: `job ${id}`, id, attempt, receipt })];
}

function settle(op: "ack" | "nack" | "fail", id: number, attempt = 1): HistoryRecord[] {
  const about = { job: `job ${id}`, id, attempt, receipt: `${id}/${attempt}` };
  return [record("invoke", op, about), record("ok", op, about)];
}

function row(id: number, more: Partial<FinalRow> = {}): FinalRow {
  const done = { does: "ack", status: 2, attempts: 1, maxAttempts: 2, reason: null, availableAt: 0 } as const;
  return { id, job: `job ${id}`, ...done, ...more };
}

function history(language: ProcessHistory["language"], ...records: HistoryRecord[][]): ProcessHistory {
  return { name: `${language} ${clock}`, language, killed: false, records: records.flat() };
}

/** What is found in histories in which the jobs are those of the rows. */
function found(rows: readonly FinalRow[], ...processes: ProcessHistory[]): string[] {
  const jobs = rows.map(({ job }) => job);
  return contradictions(processes, { jobs, rows, lostDeliveries: 0 });
}

test("histories in which every job is put, delivered and settled once contradict nothing", () => {
  const node = history("node", put(1), put(2), claim(1), settle("nack", 1), claim(1, 2), settle("ack", 1, 2));
  const python = history("python", claim(2), settle("fail", 2));
  const rows = [row(1, { attempts: 2 }), row(2, { does: "fail", status: 3, reason: "explicit_permanent_failure" })];
  expect(found(rows, node, python)).toEqual([]);
});

test("a job that was put and is not there is noticed, and so is one that is another", () => {
  const process = history("node", put(1), put(2), claim(1), settle("ack", 1));
  const expected = { jobs: ["job 1", "job 2"], rows: [row(1)], lostDeliveries: 0 };
  expect(contradictions([process], expected)).toEqual([
    "job 2 is not there",
    "job 2 was confirmed as 2, and is undefined",
  ]);
});

test("a job that ended otherwise than it was to is noticed", () => {
  for (const wrong of [
    row(1, { status: 0 }),
    row(1, { does: "fail" }),
    row(1, { does: "nack" }),
    row(1, { status: 3, reason: "retries_exhausted" }),
  ]) {
    expect(found([wrong], history("node", put(1), claim(1)))).toEqual([`a wrong end: ${JSON.stringify(wrong)}`]);
  }
});

test("a job that was done twice is noticed", () => {
  const node = history("node", put(1), claim(1), settle("ack", 1));
  const python = history("python", claim(1, 2), settle("ack", 1, 2));
  const all = found([row(1, { attempts: 2 })], node, python).join("\n");
  expect(all).toContain("settled twice");
  expect(all).toContain("delivered when it was done");
  expect(all).toContain("1 further deliveries, only 0 of them with a cause");
});

test("a delivery that two processes got is noticed", () => {
  const node = history("node", put(1), claim(1));
  const python = history("python", claim(1), settle("ack", 1));
  const all = found([row(1)], node, python).join("\n");
  expect(all).toContain("delivered to two");
  expect(all).toContain("1 receipts for 2 deliveries");
});

test("a job that is delivered while it is held, or more often than it may be, is noticed", () => {
  const [first, second] = [claim(1), claim(1, 2)];
  const node = history("node", put(1), first, settle("nack", 1));
  const python = history("python", second, settle("ack", 1, 2));
  expect(found([row(1, { attempts: 2 })], node, python).join("\n")).toContain("while it was held");
  expect(found([row(1, { attempts: 3 })], node, python).join("\n")).toContain("delivered too often");
});

test("a first delivery that comes after that of a later job is noticed, within a process and between two", () => {
  const rows = [row(1), row(2)];
  const puts = history("node", put(1), put(2));
  const one = history("node", claim(2), settle("ack", 2), claim(1), settle("ack", 1));
  expect(found(rows, puts, one).join("\n")).toContain("out of order");
  const [first, second] = [history("node", claim(2), settle("ack", 2)), history("python", claim(1), settle("ack", 1))];
  expect(found(rows, puts, first, second).join("\n")).toContain("out of order");
});

test("a Python process may miss what was put after it read the clock, and claims under way at the same time have no order", () => {
  const puts = history("node", put(1), put(2));
  const python = history("python", claim(2), settle("ack", 2));
  const late = history("node", claim(1), settle("ack", 1));
  expect(found([row(1, { availableAt: 1_000 + clock }), row(2)], puts, python, late)).toEqual([]);

  const slow = record("invoke", "claim");
  const quick = history("node", put(3), put(4), claim(4), settle("ack", 4));
  const about = { job: "job 3", id: 3, attempt: 1, receipt: "3/1" };
  const other = history("node", [slow, record("ok", "claim", about)], settle("ack", 3));
  expect(found([row(3), row(4)], quick, other)).toEqual([]);
});

test("a call that was under way when its process was killed is counted", () => {
  const killed = { ...history("node", put(1), [record("invoke", "put", { job: "job 2" })]), killed: true };
  expect(interrupted([killed, { ...killed, killed: false }, { ...killed, records: put(1) }])).toBe(1);
});
