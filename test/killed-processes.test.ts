import fs from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { EnqueueItem, SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { Connection } from "../dist/storage/sqlite/connection.js";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import { lacks } from "./support/capabilities.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { type Message, Program } from "./support/program.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

test.skipIf(lacks("thread"))(
  "wherever a process is killed, what it was told is done is done, and nothing is half done",
  async () => {
    /** The states, attempts and releases of the jobs one, two and three, and of events in two queues, after each answer. */
    const states = ["", "0 0 0", "0 0 0,0 0 0,0 0 0", "1 1 0,1 1 0,0 0 0", "2 1 0,1 1 0,0 0 0", "2 1 0,0 0 1,0 0 0"];
    states.push("2 1 0,1 1 1,0 0 0", "2 1 0,3 1 0,0 0 0", "2 1 0,3 1 0,0 0 0,0 0 0,0 0 0");
    states.push("2 1 0,3 1 0,1 1 0,0 0 0,0 0 0", "2 1 0,3 1 0,2 1 0,0 0 0,0 0 0,0 0 0,0 0 0");
    const root = tempDirectory();
    let killAt = 0;
    let over = false;
    let kills = 0;

    const killOneAfterAnother = async (): Promise<void> => {
      while (!over) {
        const n = ++killAt;
        const location = path.join(root, `${n}`);
        const program = new Program("crash-anywhere.mjs", { location, killAt: n });
        const exit = await program.ends();
        const answers = program.said("answer").length;
        new Connection({ directory: location, driver: loadDriver() }).close();
        const rows = select(location, "SELECT id, status, attempts, releases FROM messages ORDER BY id");
        const state = rows.map(({ id: _, ...row }) => Object.values(row).join(" ")).join(",");
        expect(states.slice(answers, answers + 2), `killed at statement ${n}, after answer ${answers}`).toContain(
          state,
        );
        // What was emitted is linked to the job that it came of.
        const links = select(location, "SELECT child_message_id AS id FROM event_bus_delivery_edges");
        expect(links).toEqual(rows.slice(5).map(({ id }) => ({ id })));
        expect(faultsOf(location)).toEqual([]);
        if (exit.signal === "SIGKILL") kills++;
        else {
          expect(exit).toEqual({ code: 0, signal: null, stderr: "" });
          expect(answers).toBe(10);
          over = true;
        }
      }
    };
    await Promise.all([killOneAfterAnother(), killOneAfterAnother(), killOneAfterAnother()]);
    expect(kills).toBeGreaterThan(30);
  },
  120_000,
);

test.skipIf(lacks("files"))(
  "eight processes reopen a database at once whose writer was killed, and find all or nothing of each batch",
  async () => {
    const location = tempLocation();
    const openers = Array.from({ length: 8 }, () => new Program("open.mjs"));
    for (const opener of openers) await opener.hears("ready");
    const acknowledged = new Set<unknown>();
    for (let round = 0; round < 4; round++) {
      const writer = new Program("put-many.mjs", { location, name: `${round}` });
      await writer.hears("put");
      await sleep(Math.random() * 60); // at any moment
      await writer.kill();
      for (const { batch } of writer.said("put")) acknowledged.add(batch);
      // The write-ahead log was not checkpointed: whoever comes first must recover it, and the others must wait.
      expect(fs.statSync(path.join(location, "localqueue.db-wal")).size).toBeGreaterThan(0);
      const at = Date.now() + 20;
      for (const opener of openers) opener.tell({ location, at });
      const opened = await Promise.all(openers.map((opener) => opener.hears("opened", 30_000)));
      expect(opened.map(({ error }) => error)).toEqual(openers.map(() => undefined));
      expect(new Set(opened.map(({ id }) => id)).size).toBe(8);
    }
    const batches = select(
      location,
      `SELECT CAST(payload AS TEXT) AS batch, count(*) AS jobs FROM messages WHERE payload <> CAST('"hello"' AS BLOB)
      GROUP BY payload`,
    );
    expect(new Set(batches.map(({ jobs }) => jobs))).toEqual(new Set([5_000]));
    const found = batches.map(({ batch }) => JSON.parse(String(batch)));
    expect(found).toEqual(expect.arrayContaining([...acknowledged]));
    // At most the batch that was under way when the writer died is there without having been acknowledged.
    expect(found.length).toBeLessThanOrEqual(acknowledged.size + 4);
    expect(faultsOf(location)).toEqual([]);
  },
  120_000,
);

test("when workers are killed at random, every job is done in the end, and each further delivery is due to a kill", async () => {
  const location = tempLocation();
  const jobs = 2_000;
  const kills = 10;
  const slots = 4;
  const input = { location, options: { leaseMs: 3_000 }, workerOptions: { concurrency: slots } };
  await using queue = new SimpleQueue(location, { maxRetries: kills });
  await queue.putMany(Array.from({ length: jobs }, () => ({ waitsMs: 5 })));
  const alive = new Set(Array.from({ length: 3 }, () => new Program("worker.mjs", input)));
  const dead: Program[] = [];
  const acked = async (): Promise<number> => (await queue.stats()).acked;
  for (let kill = 1; kill <= kills; kill++) {
    await until(async () => (await acked()) >= (kill * jobs) / (kills + 1), 30_000);
    const victim = [...alive][Math.floor(Math.random() * alive.size)] as Program;
    alive.delete(victim);
    await victim.kill();
    dead.push(victim);
    alive.add(new Program("worker.mjs", input));
  }
  await until(async () => (await acked()) === jobs, 30_000);
  for (const worker of alive) await worker.end();

  const rows = select(location, "SELECT id, status, attempts FROM messages");
  expect(rows.length).toBe(jobs);
  expect(rows.every(({ status }) => status === 2)).toBe(true);
  const attemptsOf = new Map(rows.map(({ id, attempts }) => [id as number, attempts as number]));
  const said = (programs: Iterable<Program>, what: string): Message[] =>
    [...programs].flatMap((program) => program.said(what));
  const all = [...alive, ...dead];
  const deliveries = said(all, "handling");
  expect(new Set(deliveries.map(({ receipt }) => receipt)).size).toBe(deliveries.length);
  expect(new Set(deliveries.map(({ id, attempt }) => `${id}/${attempt}`)).size).toBe(deliveries.length);
  const acks = said(all, "job:acked");
  expect(new Set(acks.map(({ id }) => id)).size).toBe(acks.length);
  // The one that was acknowledged is the last of all deliveries.
  expect(acks.every(({ id, attempt }) => attempt === attemptsOf.get(id as number))).toBe(true);
  // Only in processes that were killed did a delivery come to nothing, and no more than they had slots for.
  const futile = deliveries.filter(({ id, attempt }) => attempt !== attemptsOf.get(id as number));
  const ofTheDead = new Set(said(dead, "handling").map(({ receipt }) => receipt));
  expect(futile.filter(({ receipt }) => !ofTheDead.has(receipt))).toEqual([]);
  const counted = [...attemptsOf.values()].reduce((sum, attempts) => sum + attempts, 0);
  expect(counted - jobs).toBeLessThanOrEqual(kills * slots);
  expect(counted - jobs).toBeGreaterThan(0);
  expect(counted).toBeGreaterThanOrEqual(deliveries.length);
  expect([...said(all, "error"), ...said(all, "lease:lost"), ...said(all, "job:retried")]).toEqual([]);
  expect(faultsOf(location)).toEqual([]);
}, 120_000);

test("a job that kills its process each time becomes a dead letter after maxRetries + 1 deliveries", async () => {
  const location = tempLocation();
  const input = { location, options: { leaseMs: 300 } };
  await using queue = new SimpleQueue<object>(location);
  const [poison] = await queue.putMany([new EnqueueItem({ kills: true }, { maxRetries: 2 })]);
  const attempts: unknown[] = [];
  for (let process = 1; process <= 3; process++) {
    const victim = new Program("worker.mjs", input);
    attempts.push((await victim.hears("handling"))["attempt"]);
    expect(await victim.ends()).toMatchObject({ signal: "SIGKILL", stderr: "" });
  }
  expect(attempts).toEqual([1, 2, 3]);
  const survivor = new Program("worker.mjs", input);
  await until(async () => (await queue.stats()).failed === 1);
  await queue.put({});
  await survivor.hears("job:acked");
  await survivor.end();
  expect(survivor.said("handling").length).toBe(1);
  expect(select(location, "SELECT id, attempts, failure_reason FROM messages WHERE status = 3")).toEqual([
    { id: poison?.id, attempts: 3, failure_reason: "retries_exhausted" },
  ]);
  expect(faultsOf(location)).toEqual([]);
});
