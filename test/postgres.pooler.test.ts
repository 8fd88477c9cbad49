import { SimpleQueue, Worker } from "localqueue";
import { BusTopology, defineEvent, EventBus } from "localqueue/bus";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { faultsOf } from "./support/inspect.ts";
import { PgBouncer } from "./support/pgbouncer.ts";
import { PostgresLoad } from "./support/postgres-load.ts";
import { PostgresServer } from "./support/postgres-server.ts";
import { gate, start } from "./support/worker.ts";

let server: PostgresServer;
let bouncer: PgBouncer;

beforeAll(async () => {
  server = await PostgresServer.start();
  bouncer = await PgBouncer.start(server);
  return async () => {
    await bouncer.remove();
    await server.remove();
  };
});

const pooled = (schema: string): string =>
  server.url("postgres", { schema }).replace(`:${server.port}/`, `:${bouncer.port}/`);

test("through PgBouncer in transaction mode, a queue works, and a job of another process is found by polling", async () => {
  const location = pooled("polled");
  await using queue = new SimpleQueue<number>(location);
  await using producer = new SimpleQueue<number>(server.url("postgres", { schema: "polled" }));
  await queue.put(0);
  await (await queue.get()).ack();
  const waiting = queue.get({ timeoutMs: 10_000 });
  await producer.put(1);
  const job = await waiting;
  expect(job.data).toBe(1);
  await job.nack({ delayMs: 100 });
  await (await queue.get({ timeoutMs: 10_000 })).ack();
  expect(await queue.stats()).toEqual({ ready: 0, processing: 0, acked: 2, failed: 0 });
});

test("through PgBouncer, leases are renewed, and events get to their handlers", async () => {
  const location = pooled("bus");
  await using queue = new SimpleQueue<number>(location, { leaseMs: 600 });
  const { id } = await queue.put(1);
  const [begun, over] = [gate(), gate()];
  const worker = new Worker(queue, () => {
    begun.open();
    return over.passed;
  });
  void start(worker);
  await begun.passed;
  await using other = new SimpleQueue<number>(server.url("postgres", { schema: "bus" }), { leaseMs: 600 });
  await expect(other.get({ timeoutMs: 2_000 })).rejects.toMatchObject({ code: "EMPTY" });
  over.open();
  const Created = defineEvent<{ n: number }>("created");
  await using bus = new EventBus(location, { topology: new BusTopology({ mail: [Created] }) });
  const seen = gate<unknown>();
  bus.subscription("mail").handler(Created, ({ data }) => seen.open(data));
  const running = bus.run();
  onTestFinished(() => running);
  await bus.dispatch(Created({ n: 7 }));
  expect(await seen.passed).toEqual({ n: 7 });
  await bus.close();
  expect(await queue.find({ id })).toMatchObject({ state: "acked", attempts: 1 });
}, 60_000);

test("processes behind PgBouncer and beside it do everything, and all guarantees hold", async () => {
  const load = new PostgresLoad(4);
  const location = server.url("postgres", { schema: "crowd" });
  for (const each of [pooled("crowd"), pooled("crowd"), location]) await load.add(each);
  await load.resumes();
  await load.resumes();
  await load.check(location);
  expect(faultsOf(location)).toEqual([]);
}, 120_000);
