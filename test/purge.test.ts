import { SimpleQueue, Worker } from "localqueue";
import { describe, expect, test } from "vitest";
import { lacks } from "./support/capabilities.ts";
import { openDatabase } from "./support/database.ts";
import { addFinished } from "./support/finished-jobs.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { Program } from "./support/program.ts";
import { createPythonFile } from "./support/python-files.ts";
import { openQueue } from "./support/queue.ts";
import { RemoteQueue } from "./support/remote-queue.ts";
import { until } from "./support/until.ts";

function countRows(location: string): number {
  return select(location, "SELECT count(*) AS rows FROM messages")[0]?.["rows"] as number;
}

async function newQueue(location = tempLocation()): Promise<{ location: string; queue: SimpleQueue }> {
  const queue = openQueue({ location });
  await queue.stats();
  return { location, queue };
}

describe("a purge", () => {
  test("whose process is killed has deleted nothing but what it was to delete, and the counts are right", async () => {
    const { location, queue } = await newQueue();
    const kept = await queue.putMany(["one", "two", "three"]);
    await queue.close();
    addFinished(location, { rows: 100_000 });
    addFinished(location, { rows: 1000, status: 3 });
    const before = countRows(location);
    let kills = 0;
    for (let left = before; kills < 3 && left > 10_000; kills++) {
      const program = new Program("purge.mjs", { location });
      await program.hears("ready");
      const some = left - 5000 * Math.random();
      await until(() => countRows(location) < some);
      await program.kill();
      left = countRows(location);
      expect(faultsOf(location)).toEqual([]);
    }
    expect(kills).toBeGreaterThan(0);
    await new Program("purge.mjs", { location }).end();
    expect(select(location, "SELECT id FROM messages ORDER BY id")).toEqual(kept.map(({ id }) => ({ id })));
    expect(faultsOf(location)).toEqual([]);
  }, 60_000);

  test("goes on beside the work of another process, which loses nothing", async () => {
    const { location, queue } = await newQueue();
    addFinished(location, { rows: 60_000 });
    const worker = new Program("worker.mjs", { location, workerOptions: { concurrency: 4 } });
    let purged = -1;
    const purging = queue.purge({ olderThanMs: 30_000 }).then((jobs) => {
      purged = jobs;
    });
    let put = 0;
    while (purged < 0) {
      await queue.putMany([{ waitsMs: 0 }, { waitsMs: 1 }]);
      put += 2;
    }
    await purging;
    expect(purged).toBe(60_000);
    await until(async () => (await queue.stats()).acked === put);
    await worker.end();
    expect(faultsOf(location)).toEqual([]);
  }, 60_000);

  test.skipIf(lacks("files"))(
    "leaves room in the file: as many jobs again do not make it larger",
    async () => {
      const { location, queue } = await newQueue();
      const pages = (): number => {
        const [row] = select(location, "PRAGMA page_count");
        return row?.["page_count"] as number;
      };
      const payloads = Array.from({ length: 5000 }, (_, i) => ({ i, text: "x".repeat(200) }));
      const round = async (): Promise<number> => {
        await queue.putMany(payloads);
        for (
          let jobs = await queue.getMany(1000);
          jobs.length > 0;
          jobs = await queue.getMany(1000, { timeoutMs: 0 })
        ) {
          await Promise.all(jobs.map((job) => job.ack()));
        }
        await until(async () => (await queue.purge({ olderThanMs: 0 })) === 0 && (await queue.stats()).acked === 0);
        return pages();
      };
      const first = await round();
      for (let rounds = 0; rounds < 3; rounds++) expect(await round()).toBeLessThanOrEqual(first * 1.05);
    },
    30_000,
  );

  test("and a replay by filter end when the queue is closed", async () => {
    const { location, queue } = await newQueue();
    addFinished(location, { rows: 100_000 });
    const purging = queue.purge({ olderThanMs: 1000 });
    const refused = expect(purging).rejects.toMatchObject({ code: "CLOSED" });
    await until(() => countRows(location) < 100_000);
    await queue.close();
    await refused;
    expect(countRows(location)).toBeGreaterThan(0);
    expect(faultsOf(location)).toEqual([]);
    await expect(queue.retryFailed({})).rejects.toMatchObject({ code: "CLOSED" });
  });
});

test("two processes that replay the same dead letter: one succeeds, the other finds none", async () => {
  const { location, queue } = await newQueue();
  const others = [new RemoteQueue(location), new RemoteQueue(location)];
  for (let round = 0; round < 5; round++) {
    const { id } = await queue.put(round);
    await (await queue.get()).fail();
    const outcomes = await Promise.allSettled(others.map((other) => other.call("retryFailed", id)));
    const codes = outcomes.map((outcome) => (outcome.status === "fulfilled" ? outcome.value : outcome.reason.code));
    expect(codes.sort()).toEqual([1, "NOT_FOUND"]);
    const job = await queue.getNowait();
    expect(job).toMatchObject({ id, attempt: 1 });
    await job.ack();
  }
});

test("a worker removes what is older than its queue keeps, and nothing else", async () => {
  const { location, queue } = await newQueue();
  addFinished(location, { rows: 5000 });
  addFinished(location, { rows: 10, status: 3 });
  await queue.put("done just now");
  await using keeping = new SimpleQueue(location, { retention: { ackedMs: 30_000 } });
  await using worker = new Worker(keeping, () => undefined);
  const running = worker.run();
  await until(() => countRows(location) === 11);
  await worker.stop();
  await running;
  expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 10 });
  expect(faultsOf(location)).toEqual([]);
});

describe.skipIf(lacks("python"))("in a file of the Python package, jobs that belong to its executions", () => {
  /** Ids 1 and 8 are ready, 6 acked, 7 failed; all of them and the bus's are tracked. */
  function pythonFile(): string {
    const location = tempLocation();
    createPythonFile(location, "1.4.1");
    const database = openDatabase(location);
    database.exec(`INSERT INTO event_bus_execution_deliveries VALUES ('e1', 1), ('e1', 6), ('e1', 7);
      INSERT INTO event_bus_executions VALUES ('e2', 'app', 'people', 'others', 1, 0, 0);
      INSERT INTO event_bus_execution_runtime (execution_id, bus_name, checkpoint_name, source_fingerprint, completed_at)
        VALUES ('e2', 'app', 'others', 'f2', 1790000001000);
      UPDATE event_bus_execution_runtime SET completed_at = 1790000001000`);
    database.close();
    return location;
  }

  const completed = (location: string): unknown[] =>
    select(location, "SELECT execution_id FROM event_bus_execution_runtime WHERE completed_at IS NOT NULL").map(
      (row) => row["execution_id"],
    );

  test("are deleted by nothing", async () => {
    const location = pythonFile();
    const queue = openQueue({ location });
    expect(await queue.purge({ olderThanMs: 0, includeFailed: true })).toBe(0);
    expect(await queue.purgeFailed({})).toBe(0);
    expect(await queue.purgeFailed(7)).toBe(0);
    expect(await queue.remove(1)).toBe(false);
    expect(countRows(location)).toBe(8);
  });

  test.each([
    ["by its id", 7],
    ["by a filter", { reason: "rejected" }],
  ] as const)("are not complete any more once one of them is replayed %s", async (_, which) => {
    const location = pythonFile();
    const queue = openQueue({ location });
    expect(completed(location)).toEqual(["e1", "e2"]);
    expect(await queue.retryFailed(which)).toBe(1);
    expect(completed(location)).toEqual(["e2"]);
  });

  test("go once they do not belong to one any more, and their lines of descent with them", async () => {
    const location = pythonFile();
    const database = openDatabase(location);
    database.exec("DELETE FROM event_bus_execution_deliveries WHERE message_id = 6");
    database.close();
    const queue = openQueue({ location });
    expect(await queue.purge({ olderThanMs: 0 })).toBe(1);
    expect(select(location, "SELECT * FROM event_bus_delivery_edges")).toEqual([]);
    expect(countRows(location)).toBe(7);
  });
});
