import { describe, expect, test } from "vitest";
import { select } from "../support/inspect.ts";
import { until } from "../support/until.ts";
import { DIRECTIONS, openSide, type Side, type SideOptions, sharedDirectory } from "./support/sides.ts";

describe.each(DIRECTIONS)("%s and %s on one queue:", (first, second) => {
  function open(options: SideOptions = {}): { directory: string; one: Side; other: Side } {
    const directory = sharedDirectory();
    return { directory, one: openSide(first, directory, options), other: openSide(second, directory, options) };
  }

  test("what one puts, the other is given in that order, and can acknowledge", async () => {
    const { one, other } = open();
    const ids = [await one.put({ n: 1 }), await one.put({ n: 2 }), await other.put({ n: 3 })];
    ids.push(...(await one.putMany([{ data: { n: 4 } }, { data: { n: 5 } }])));
    for (const [index, id] of ids.entries()) {
      const job = await other.get();
      expect(job).toMatchObject({ id, data: { n: index + 1 }, attempt: 1 });
      expect(await one.stats()).toEqual({ ready: 4 - index, processing: 1, acked: index, failed: 0 });
      await other.ack(job);
      const after = { ready: 4 - index, processing: 0, acked: index + 1, failed: 0 };
      expect([await one.stats(), await other.stats()]).toEqual([after, after]);
    }
    await expect(other.get(0)).rejects.toMatchObject(other.errors.empty);
    await expect(one.get(0)).rejects.toMatchObject(one.errors.empty);
  });

  test("what one puts ends the wait of the other", async () => {
    const { one, other } = open();
    await one.stats();
    const waiting = other.get();
    await one.put("job");
    expect(await waiting).toMatchObject({ data: "job" });
  });

  test("what one gives back, the other is given next, and its deliveries add up to a dead letter", async () => {
    const { one, other } = open({ maxRetries: 2 });
    const id = await one.put("again");
    const later = await one.put("later");
    await one.nack(await one.get(), { lastError: "first" });
    const second = await other.get();
    expect(second).toMatchObject({ id, attempt: 2 });
    await other.nack(second, { lastError: "second" });
    const third = await one.get();
    expect(third).toMatchObject({ id, attempt: 3 });
    await one.nack(third, { lastError: "third: ä😀" });
    const letter = { id, data: "again", attempts: 3, reason: "retries_exhausted", lastError: "third: ä😀" };
    expect(await other.failed()).toMatchObject([letter]);
    expect(await one.failed()).toMatchObject([letter]);
    expect(await other.get()).toMatchObject({ id: later, attempt: 1 });
  });

  test("what one gives back for later, the other is given when it is due, before younger jobs", async () => {
    const { directory, one, other } = open();
    const id = await one.put("delayed");
    await one.nack(await one.get(), { delayMs: 4000 });
    const younger = await one.put("younger");
    expect(await other.get()).toMatchObject({ id: younger });
    const youngest = await other.put("youngest");
    expect(await other.stats()).toMatchObject({ ready: 2, processing: 1 });
    const [row] = select(directory, `SELECT available_at FROM messages WHERE id = ${id}`);
    await until(() => Date.now() >= Number(row?.["available_at"]));
    expect(await other.get()).toMatchObject({ id, attempt: 2 });
    expect(await other.get()).toMatchObject({ id: youngest });
  });

  test("what one refuses for good, the other lists, and delivers anew", async () => {
    const { one, other } = open();
    const id = await one.put({ no: "good" });
    await one.fail(await one.get(), "ValueError: no good");
    const letter = { id, data: { no: "good" }, attempts: 1, reason: "explicit_permanent_failure" };
    expect(await other.failed()).toMatchObject([{ ...letter, lastError: "ValueError: no good" }]);
    await other.retryFailed(id);
    await expect(one.retryFailed(id)).rejects.toMatchObject(one.errors.unknown);
    expect(await one.failed()).toEqual([]);
    const again = await one.get();
    expect(again).toMatchObject({ id, attempt: 1 });
    await one.nack(again);
    expect(await other.get()).toMatchObject({ id, attempt: 2 });
  });

  test("a lease that one lets run out, the other takes over, and the first can change nothing any more", async () => {
    const { one, other } = open({ leaseMs: 1500 });
    const id = await one.put("slow");
    const late = await one.get();
    await expect(other.get(0)).rejects.toMatchObject(other.errors.empty);
    const taken = await other.get();
    expect(taken).toMatchObject({ id, attempt: 2 });
    expect(taken.receipt).not.toBe(late.receipt);
    await other.extend(taken, 60_000);
    for (const settle of [
      () => one.ack(late),
      () => one.nack(late),
      () => one.fail(late),
      () => one.extend(late, 1000),
    ]) {
      await expect(settle()).rejects.toMatchObject(one.errors.lost);
    }
    expect(await one.stats()).toEqual({ ready: 0, processing: 1, acked: 0, failed: 0 });
    await other.ack(taken);
  });

  test("a lease that ran out is over even if nobody took the job", async () => {
    const { directory, one, other } = open({ leaseMs: 100 });
    await one.put("slow");
    const late = await one.get();
    const [row] = select(directory, "SELECT lease_until FROM messages");
    await until(() => Date.now() > Number(row?.["lease_until"]));
    await expect(one.ack(late)).rejects.toMatchObject(one.errors.lost);
    await expect(other.ack(late)).rejects.toMatchObject(other.errors.lost);
  });

  test("leases of one that ran out, the other ends when it is told to, the last one as a dead letter", async () => {
    const { one, other } = open({ leaseMs: 100, maxRetries: 0 });
    const id = await other.put("only once");
    await one.get();
    await until(async () => (await other.reclaim()) === 1);
    expect(await one.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 1 });
    const letter = { id, attempts: 1, reason: "retries_exhausted" };
    expect(await one.failed()).toMatchObject([letter]);
    expect(await other.failed()).toMatchObject([letter]);
  });

  test("a process of one that is killed leaves its job to the other", async () => {
    const { one, other } = open({ leaseMs: 500 });
    const id = await one.put("orphan");
    await one.get();
    await one.kill();
    expect(await other.get()).toMatchObject({ id, attempt: 2 });
  });

  test("who extends a lease keeps it from the other, and who knows the receipt can settle", async () => {
    const { directory, one, other } = open({ leaseMs: 1000 });
    await one.put("long");
    const job = await one.get();
    await one.extend(job, 60_000);
    const [row] = select(directory, "SELECT lease_until - updated_at AS left FROM messages");
    expect(row?.["left"]).toBe(60_000);
    expect(await other.reclaim()).toBe(0);
    await other.extend(job, 30_000);
    await other.ack(job);
    await expect(one.ack(job)).rejects.toMatchObject(one.errors.lost);
  });

  test("a jobId that one has used is known to the other, also when the job is done or dead", async () => {
    const { one, other } = open();
    const jobId = 'ä😀 "quoted" \\ ';
    const id = await one.put({ from: "one" }, { jobId });
    expect(await other.put({ from: "other" }, { jobId })).toBe(id);
    const job = await other.get();
    expect(job).toMatchObject({ id, data: { from: "one" } });
    await other.ack(job);
    expect(await one.put({ from: "one" }, { jobId })).toBe(id);
    expect(await other.put({ from: "other" }, { jobId })).toBe(id);
    const [known, added, twice] = await other.putMany([
      { data: 1, jobId },
      { data: 2, jobId: "new" },
      { data: 3, jobId: "new" },
    ]);
    expect([known, twice]).toEqual([id, added]);
    await one.fail(await one.get());
    expect(await other.put({}, { jobId: "new" })).toBe(added);
    expect(await other.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 1 });
  });

  test("one jobId put by both at the same time is one job", async () => {
    const { one, other } = open();
    const pairs = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        Promise.all([one.put(i, { jobId: `j${i}` }), other.put(i, { jobId: `j${i}` })]),
      ),
    );
    for (const [here, there] of pairs) expect(here).toBe(there);
    expect(await one.stats()).toMatchObject({ ready: 50 });
  });

  test("a limit holds for both together, and room made by one ends the wait of the other", async () => {
    const { one, other } = open({ maxPendingJobs: 3 });
    await one.put(1, { jobId: "known" });
    await other.put(2);
    const job = await other.get();
    await one.put(3);
    await expect(one.put(4, { waitMs: 0 })).rejects.toMatchObject(one.errors.full);
    await expect(other.put(4, { waitMs: 0 })).rejects.toMatchObject(other.errors.full);
    await expect(other.put(4, { waitMs: 200 })).rejects.toMatchObject(other.errors.full);
    await one.put(1, { jobId: "known", waitMs: 0 }); // takes no room
    const waiting = one.put(4);
    await other.ack(job);
    await waiting;
    expect(await other.stats()).toEqual({ ready: 3, processing: 0, acked: 1, failed: 0 });
  });

  test("at a limit, puts of both at the same time never exceed it", async () => {
    const { directory, one, other } = open({ maxPendingJobs: 5 });
    const sides = [one, other];
    const puts = Array.from({ length: 40 }, (_, i) => sides[i % 2]?.put(i, { waitMs: 0 }).catch(() => undefined));
    const ids = (await Promise.all(puts)).filter((id) => id !== undefined);
    expect(ids.length).toBe(5);
    expect(select(directory, "SELECT count(*) AS n FROM messages")).toEqual([{ n: 5 }]);
  });

  test("what is done, either purges, and the counts are right with both", async () => {
    const { one, other } = open();
    await one.putMany([{ data: 1 }, { data: 2, jobId: "again" }, { data: 3 }, { data: 4 }]);
    await one.ack(await one.get());
    await other.ack(await other.get());
    await one.fail(await one.get());
    // What was finished within this very millisecond is spared.
    let purged = 0;
    await until(async () => {
      purged += await other.purge(0);
      return purged === 2;
    });
    expect(await one.stats()).toEqual({ ready: 1, processing: 0, acked: 0, failed: 1 });
    await until(async () => (await one.purge(0, true)) === 1);
    const left = { ready: 1, processing: 0, acked: 0, failed: 0 };
    expect([await one.stats(), await other.stats()]).toEqual([left, left]);
    await other.put(2, { jobId: "again" });
    expect(await one.stats()).toMatchObject({ ready: 2 });
  });

  test("queues of other names are none of its business", async () => {
    const { directory, one } = open({ name: "mails" });
    const elsewhere = openSide(second, directory, { name: "Mails" });
    const id = await one.put("mail");
    await expect(elsewhere.get(0)).rejects.toMatchObject(elsewhere.errors.empty);
    const job = await one.get();
    await expect(elsewhere.ack(job)).rejects.toMatchObject(elsewhere.errors.lost);
    await one.fail(job);
    await expect(elsewhere.retryFailed(id)).rejects.toMatchObject(elsewhere.errors.unknown);
    expect(await elsewhere.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 0 });
  });
});
