import { EnqueueItem, SimpleQueue } from "localqueue";
import { expect, onTestFinished, test } from "vitest";
import { lockDatabase, openDatabase, readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { RemoteQueue } from "./support/remote-queue.ts";
import { until } from "./support/until.ts";

test("a claim passes over a job that somebody else is just taking, and takes the next", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue<number>(location);
  await queue.putMany([1, 2]);
  const other = openDatabase(location);
  onTestFinished(() => other.close());
  other.exec("BEGIN; SELECT * FROM messages WHERE id = 1 FOR UPDATE");
  expect(await queue.getNowait()).toMatchObject({ id: 2 });
  other.exec("ROLLBACK");
  expect(await queue.get({ timeoutMs: 5_000 })).toMatchObject({ id: 1, attempt: 1 });
});

test("times are those of the moment at which the locks are there, not of the call", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue(location);
  await queue.put("first");
  const unlock = lockDatabase(location);
  const put = queue.put("second");
  const look = openDatabase(location);
  onTestFinished(() => look.close());
  const clock = (): number =>
    Number(look.prepare("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now").get()?.["now"]);
  const waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'messages'::regclass";
  const waitsSince = clock();
  // It has been waiting for a while.
  await until(() => clock() > waitsSince + 100 && look.prepare(waits).get() !== undefined);
  const unlockedAt = clock();
  unlock();
  const { id } = await put;
  expect(readRow(location, id)["created_at"]).toBeGreaterThanOrEqual(unlockedAt);
});

test("whoever waits in another process is told of a job, and does not have to look for it", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue<number>(location);
  const consumer = new RemoteQueue(location);
  await consumer.call("stats");
  const waits: number[] = [];
  for (let n = 0; n < 20; n++) {
    const job = consumer.get({ timeoutMs: 10_000 });
    await consumer.call("stats"); // which is answered after the look for a job: it waits by now
    const startedAt = performance.now();
    await queue.put(n);
    await consumer.call("ack", await job);
    waits.push(performance.now() - startedAt);
  }
  // Those who look do so once in a second.
  expect(waits.filter((ms) => ms < 400).length, `${waits.map(Math.round)}`).toBeGreaterThanOrEqual(18);
});

test("a job whose row somebody holds keeps nobody waiting who settles another one", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue<number>(location);
  await queue.putMany([1, 2, 3]);
  const [first, second, third] = await queue.getMany(3);
  const other = openDatabase(location);
  onTestFinished(() => other.close());
  other.exec("BEGIN; SELECT * FROM messages WHERE id = 1 FOR UPDATE");
  const stuck = first?.ack();
  await second?.ack(); // asked for at the same time
  const startedAt = performance.now();
  await third?.ack(); // while the first is tried again and again
  expect(performance.now() - startedAt).toBeLessThan(5_000); // that goes on for thirty
  other.exec("ROLLBACK");
  await stuck;
  expect(await queue.stats()).toMatchObject({ processing: 0, acked: 3 });
});

test("jobs with names are added in one order by all, so that nobody waits for each other, and numbered in the order of the call", async () => {
  const location = tempLocation();
  await using queue = new SimpleQueue<number>(location);
  const names = ["pear", "apple", "quince", "fig"];
  const added = await queue.putMany(names.map((jobId, data) => new EnqueueItem(data, { jobId })));
  expect(added.map(({ id }) => id)).toEqual([1, 2, 3, 4]);
  const look = openDatabase(location);
  onTestFinished(() => look.close());
  const rows = look.prepare("SELECT id, job_id FROM messages ORDER BY ctid").all();
  expect(rows.map((row) => row["job_id"])).toEqual(names.toSorted());
  expect(rows.map((row) => row["id"])).toEqual([2, 4, 1, 3]);
});
