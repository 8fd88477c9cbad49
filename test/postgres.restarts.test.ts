import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue, Worker } from "localqueue";
import { expect, onTestFinished, test } from "vitest";
import { PostgresLoad } from "./support/postgres-load.ts";
import { PostgresServer } from "./support/postgres-server.ts";
import { Random } from "./support/random.mjs";
import { until } from "./support/until.ts";
import { listenTo, start } from "./support/worker.ts";

const PROCESSES = 3;
const RESTARTS = 3;

async function newServer(): Promise<PostgresServer> {
  const server = await PostgresServer.start();
  onTestFinished(() => server.remove());
  return server;
}

async function loadOn(server: PostgresServer): Promise<PostgresLoad> {
  const load = new PostgresLoad(1);
  for (let i = 0; i < PROCESSES; i++) await load.add(server.url());
  return load;
}

test.each(["fast", "immediate"] as const)(
  "a server that stops (%s) and starts again under load loses nothing, and everything resumes by itself",
  async (mode) => {
    const server = await newServer();
    const load = await loadOn(server);
    const random = new Random(1);
    for (let restarts = 0; restarts < RESTARTS; restarts++) {
      await sleep(random.between(200, 1_500)); // at any moment
      await server.stop(mode);
      await sleep(random.between(0, 1_000));
      await server.start();
      await load.resumes();
    }
    await load.check(server.url());
  },
  120_000,
);

test("a server that comes back and only reads, as a standby does, is waited for until it writes again", async () => {
  const server = await newServer();
  const load = await loadOn(server);
  await load.resumes();
  await using queue = new SimpleQueue(server.url("postgres", { schema: "patient" }));
  await queue.put("first");
  await server.stop("fast");
  await server.start({ default_transaction_read_only: "on" });
  const put = queue.put("second");
  // Some fail, that put among them, and try again.
  await until(() => server.log.split("read-only transaction").length > 3 && server.log.includes('"patient"'), 30_000);
  await server.stop("fast");
  await server.start();
  expect(await put).toMatchObject({ inserted: true });
  await load.resumes();
  await load.check(server.url());
}, 120_000);

test("a worker waits for a server that is away, and goes on", async () => {
  const server = await newServer();
  await using queue = new SimpleQueue<number>(server.url());
  await queue.put(1);
  const worker = new Worker(queue, () => {});
  const told = listenTo(worker);
  void start(worker);
  await until(() => told.some(([name]) => name === "job:acked"));
  await server.stop("fast");
  await server.start();
  await queue.put(2);
  await until(() => told.some(([name, data]) => name === "job:acked" && data === 2), 20_000);
  expect(told.filter(([name]) => name === "job:failed" || name === "lease:lost")).toEqual([]);
}, 60_000);
