import type { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import type { Consumer, ConsumerSettings, Delivery, Storage } from "../dist/storage/storage.js";
import { readRow, steal } from "./support/database.ts";
import { entry, open, rejection } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

/** What a consumer hands over to the engine that follows one that died. */

const SETTINGS: ConsumerSettings = {
  slots: 2,
  leaseMs: 60_000,
  heartbeatMs: 20_000,
  timeoutMs: undefined,
  graceMs: 50,
  maxAttempts: undefined,
};

interface Setting {
  readonly directory: string;
  readonly storage: Storage;
  readonly consumer: Consumer;
  /** What the consumer was told, and of which delivery. */
  readonly told: [news: string, receipt: string][];
  /** Claims a job of its own for a slot. */
  readonly deliver: (slot: number) => Promise<Delivery>;
  /** Ends the engine; the next one has its first transaction behind it. */
  readonly restart: () => Promise<void>;
}

function consuming(settings: Partial<ConsumerSettings> = {}): Setting {
  const threads: Worker[] = [];
  const note = (worker: Worker): void => void threads.push(worker);
  process.on("worker", note);
  onTestFinished(() => void process.off("worker", note));
  const directory = tempDirectory();
  const storage = open(directory);
  const told: Setting["told"] = [];
  const consumer = storage.consume(
    { ...SETTINGS, ...settings },
    {
      leaseLost: (receipt) => told.push(["lost", receipt]),
      leaseRenewed: (receipt) => told.push(["renewed", receipt]),
      timedOut: (receipt) => told.push(["timed out", receipt]),
      overdue: (receipt) => told.push(["overdue", receipt]),
    },
  );
  const deliver = async (slot: number): Promise<Delivery> => {
    await storage.put([entry("job")], {});
    const delivery = await consumer.claim(slot, { waitMs: Number.POSITIVE_INFINITY });
    if (delivery === undefined) throw new Error("nothing was delivered");
    return delivery;
  };
  const restart = async (): Promise<void> => {
    const { length } = threads;
    await threads.at(-1)?.terminate();
    await storage.put([entry("another")], {});
    await storage.stats();
    expect(threads).toHaveLength(length + 1);
  };
  return { directory, storage, consumer, told, deliver, restart };
}

test("a delivery that the consumer settled is over for the next engine, too", async () => {
  const { consumer, told, deliver, restart } = consuming();
  const delivery = await deliver(0);
  expect(consumer.start(0, delivery)).toBe(true);
  expect(await consumer.settle(0, delivery, { event: "ack" })).toBe("acked");
  await restart();
  expect(told).toEqual([]);
});

test("so is one whose settlement was refused", async () => {
  const { directory, consumer, told, deliver, restart } = consuming();
  const delivery = await deliver(1);
  expect(consumer.start(1, delivery)).toBe(true);
  steal(directory, delivery.id);
  expect(await rejection(consumer.settle(1, delivery, { event: "ack" }))).toMatchObject({ name: "LeaseExpiredError" });
  await restart();
  expect(told).toEqual([]);
});

test("one whose ack was undone by a conflict is renewed by the next engine", async () => {
  const { storage, consumer, told, deliver, restart } = consuming();
  const delivery = await deliver(0);
  expect(consumer.start(0, delivery)).toBe(true);
  const event = { payload: "", jobId: "1", queues: ["q"], identity: { key: "k", fingerprint: "f" }, maxAttempts: 4 };
  await storage.dispatch([event]);
  const emit = [{ ...event, identity: { key: "k", fingerprint: "g" } }];
  expect(await rejection(consumer.settle(0, delivery, { event: "ack", emit }))).toMatchObject({
    name: "DeduplicationConflictError",
  });
  await restart();
  await until(() => told.length > 0);
  expect(told).toEqual([["renewed", delivery.receipt]]);
  expect(await consumer.settle(0, delivery, { event: "ack" })).toBe("acked");
});

test("one whose handler is overdue is not renewed by the next engine either", async () => {
  const { directory, consumer, told, deliver, restart } = consuming({ timeoutMs: 50 });
  const delivery = await deliver(0);
  expect(consumer.start(0, delivery)).toBe(true);
  await until(() => told.length === 2);
  const { lease_until: leaseUntil } = readRow(directory, delivery.id);
  await restart();
  expect(told.map(([news]) => news)).toEqual(["timed out", "overdue"]);
  expect(readRow(directory, delivery.id)).toMatchObject({ lease_until: leaseUntil });
});

test("a delivery that is not settled yet is renewed beside the one that its slot was given since", async () => {
  const { consumer, told, deliver, restart } = consuming();
  const first = await deliver(0);
  expect(consumer.start(0, first)).toBe(true);
  const second = await deliver(0);
  await restart();
  await until(() => told.length >= 2);
  expect(new Set(told.map(([news, receipt]) => `${news} ${receipt}`))).toEqual(
    new Set([`renewed ${first.receipt}`, `renewed ${second.receipt}`]),
  );
  expect(await consumer.settle(0, first, { event: "ack" })).toBe("acked");
  expect(consumer.start(0, second)).toBe(true);
});
