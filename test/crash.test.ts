import { SimpleQueue } from "localqueue";
import { describe, expect, test } from "vitest";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { Program } from "./support/program.ts";
import { RemoteQueue } from "./support/remote-queue.ts";

/** A command of each kind, and what is in the file before and after it. The job under test is number 1. */
interface Case {
  readonly verb: string;
  /** The job is claimed before. */
  readonly claimed: boolean;
  readonly command: (lease: { id: number; receipt: string }) => object;
  readonly before: object[];
  readonly after: object[];
}

const entry = { jobId: null, delayMs: 0, maxAttempts: 4 };
const settle = (move: object) => (lease: object) => ({ op: "settle", lease, move });
const explained = { last_error: null, failure_reason: null, failure_category: null };
const ready = { id: 1, payload: "1", status: 0, attempts: 0, delay: 0, lease: null, releases: 0, ...explained };
const held = { ...ready, status: 1, attempts: 1, delay: null, lease: 3_600_000 };

const cases: Case[] = [
  {
    verb: "put",
    claimed: false,
    command: () => ({ op: "put", entry: { ...entry, delayMs: 5_000 } }),
    before: [ready],
    after: [ready, { ...ready, id: 2, delay: 5_000 }],
  },
  {
    verb: "putMany",
    claimed: false,
    command: () => ({ op: "put", entry, copies: 3 }),
    before: [ready],
    after: [1, 2, 3, 4].map((id) => ({ ...ready, id })),
  },
  {
    verb: "claim",
    claimed: false,
    command: () => ({ op: "claim", limit: 1, leaseMs: 3_600_000, waitMs: 0 }),
    before: [ready],
    after: [held],
  },
  {
    verb: "ack",
    claimed: true,
    command: settle({ event: "ack" }),
    before: [held],
    after: [{ ...held, status: 2, lease: null }],
  },
  {
    verb: "nack",
    claimed: true,
    command: settle({ event: "nack", delayMs: 5_000, lastError: "Error: no", exhaustedReason: "retries_exhausted" }),
    before: [held],
    after: [{ ...ready, attempts: 1, delay: 5_000, last_error: "Error: no" }],
  },
  {
    verb: "fail",
    claimed: true,
    command: settle({ event: "fail", lastError: "Error: no", reason: "rejected", category: "mail" }),
    before: [held],
    after: [
      {
        ...held,
        status: 3,
        lease: null,
        last_error: "Error: no",
        failure_reason: "rejected",
        failure_category: "mail",
      },
    ],
  },
  {
    verb: "release",
    claimed: true,
    command: settle({ event: "release" }),
    before: [held],
    after: [{ ...ready, releases: 1 }],
  },
  {
    verb: "extendLease",
    claimed: true,
    command: (lease) => ({ op: "extend", lease, ms: 7_200_000 }),
    before: [held],
    after: [{ ...held, lease: 7_200_000 }],
  },
];

/** What is in the file, times relative to the last change of the row. */
function jobsIn(location: string): object[] {
  return select(
    location,
    `SELECT id, CAST(payload AS TEXT) AS payload, status, attempts,
      CASE WHEN status = 0 THEN available_at - updated_at END AS delay, lease_until - updated_at AS lease, releases,
      last_error, failure_reason, failure_category FROM messages ORDER BY id`,
  );
}

const moments = { "before COMMIT": "before", "before the answer": "after" } as const;

describe.each(cases)("a process killed during $verb", ({ claimed, command, before, after }) => {
  const expected = { before, after };

  test.each(Object.keys(moments) as (keyof typeof moments)[])("%s leaves all of it or nothing", async (moment) => {
    const location = tempLocation();
    const queue = new SimpleQueue(location, { leaseMs: 3_600_000 });
    await queue.put(1);
    const lease = claimed ? await queue.getNowait() : { id: 1, receipt: "none" };
    await queue.close();
    expect(jobsIn(location)).toEqual(before);

    const program = new Program("engine-crash.mjs", {
      location,
      moment,
      command: command({ id: lease.id, receipt: lease.receipt }),
    });
    expect(await program.ends()).toEqual({ code: null, signal: "SIGKILL", stderr: "" });
    expect(program.messages).toEqual([]);

    const reopened = new SimpleQueue(location);
    const { ready: readyJobs, processing, acked, failed } = await reopened.stats();
    await reopened.close();
    const rows = expected[moments[moment]];
    expect(jobsIn(location)).toEqual(rows);
    const count = (status: number): number => rows.filter((one) => Reflect.get(one, "status") === status).length;
    expect([readyJobs, processing, acked, failed]).toEqual([0, 1, 2, 3].map(count));
    expect(faultsOf(location)).toEqual([]);
  });
});

test("a process killed in the middle of a putMany of 5,000 leaves none of them", async () => {
  const location = tempLocation();
  const command = { op: "put", entry, copies: 5_000 };
  const program = new Program("engine-crash.mjs", { location, moment: "halfway", command });
  expect(await program.ends()).toMatchObject({ signal: "SIGKILL", stderr: "" });
  const queue = new SimpleQueue(location);
  expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 0 });
  expect((await queue.putMany(Array.from({ length: 5_000 }, (_, i) => i))).length).toBe(5_000);
  await queue.close();
  expect(select(location, "SELECT count(*) AS jobs FROM messages")).toEqual([{ jobs: 5_000 }]);
  expect(faultsOf(location)).toEqual([]);
});

test("a job whose process is killed before it can acknowledge is delivered again when its lease ends", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue(location, { leaseMs: 60_000 });
  await queue.stats();
  const first = new RemoteQueue(location, { leaseMs: 800 });
  const { id } = await first.call<{ id: number }>("put", "work");
  const claim = await first.get();
  expect(claim).toMatchObject({ id, attempt: 1 });
  await first.kill();

  // Nothing shows that the process is dead: its lease is what the others wait for.
  expect(await queue.getMany(1, { timeoutMs: 0 })).toEqual([]);
  const again = await queue.get({ timeoutMs: 10_000 });
  expect(again).toMatchObject({ id, attempt: 2, data: "work" });
  expect(again.receipt).not.toBe(claim.receipt);
  await expect(queue.ack(claim)).rejects.toMatchObject({ code: "LEASE_EXPIRED" });
  await expect(queue.extendLease(claim, 1_000)).rejects.toMatchObject({ code: "LEASE_EXPIRED" });
  await again.ack();
  expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  expect(faultsOf(location)).toEqual([]);
});
