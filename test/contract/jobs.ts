import { randomUUID } from "node:crypto";
import { afterAll, afterEach, beforeAll, expect, onTestFinished } from "vitest";
import { DeduplicationConflictError } from "../../dist/errors.js";
import type { Delivery, Entry, Envelope, QueueStats, Storage, Wait } from "../../dist/storage/storage.js";
import type { Backend, Bench, StoredJob } from "../support/backend.ts";

/** What the parts of the contract share: entries to put, claims that do not wait, benches that close by themselves. */

export const LEASE_MS = 60_000;

/** No time-out, no signal. */
export const PATIENT: Wait = {};

/** A database for the running test. */
export async function openBench(backend: Backend): Promise<Bench> {
  const bench = await backend.open();
  onTestFinished(({ task }) => bench.close({ keep: task.result?.state === "fail" }));
  return bench;
}

/** One database for all tests of a group, which must use queues of their own. */
export function shareBench(backend: Backend): () => Bench {
  let bench: Bench;
  let failed = false;
  beforeAll(async () => {
    bench = await backend.open();
  });
  afterEach(({ task }) => {
    failed ||= task.result?.state === "fail";
  });
  afterAll(() => bench.close({ keep: failed }));
  return () => bench;
}

export function entry(payload: string, options: Partial<Entry> = {}): Entry {
  return { payload, jobId: undefined, delayMs: 0, maxAttempts: 4, ...options };
}

/** An event of its own for these queues. */
export function event(queues: readonly string[], options: Partial<Envelope> = {}): Envelope {
  return { payload: "payload", jobId: randomUUID(), queues, identity: undefined, maxAttempts: 4, ...options };
}

/** Puts one job; returns its id. */
export async function put(storage: Storage, payload = "payload", options: Partial<Entry> = {}): Promise<number> {
  const [enqueued] = await storage.put([entry(payload, options)], PATIENT);
  return enqueued?.id ?? Number.NaN;
}

/** Puts so many jobs at once; returns their ids. */
export async function putMany(storage: Storage, count: number, options: Partial<Entry> = {}): Promise<number[]> {
  const entries = Array.from({ length: count }, (_, index) => entry(`payload ${index}`, options));
  return (await storage.put(entries, PATIENT)).map(({ id }) => id);
}

/** Claims what is ready, without waiting. */
export function take(storage: Storage, limit = 1, leaseMs: number = LEASE_MS): Promise<Delivery[]> {
  return storage.claim({ limit, leaseMs, timeoutMs: 0 });
}

/** Claims the one job that must be ready. */
export async function takeOne(storage: Storage, leaseMs: number = LEASE_MS): Promise<Delivery> {
  const [delivery] = await take(storage, 1, leaseMs);
  if (delivery === undefined) throw new Error("Nothing was ready");
  return delivery;
}

export async function onlyJob(bench: Bench, queue?: string): Promise<StoredJob> {
  const jobs = await bench.jobs(queue);
  expect(jobs).toHaveLength(1);
  return jobs[0] as StoredJob;
}

/** A storage's statistics are right if they equal the rows, counted. */
export async function expectRightCounts(bench: Bench, storage: Storage, queue: string): Promise<void> {
  const counts: { -readonly [K in keyof QueueStats]: number } = { ready: 0, processing: 0, acked: 0, failed: 0 };
  for (const { state } of await bench.jobs(queue)) counts[state]++;
  expect(await storage.stats()).toEqual(counts);
}

/** Somebody has stored the same event with another payload. */
export async function expectConflict(refused: Promise<unknown>, jobId: string, queue: string): Promise<void> {
  const error = await refused.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(DeduplicationConflictError);
  expect((error as Error).message).toBe(
    `The event ${jobId} was refused: in ${queue} an event with the same identity and another payload is there already. ` +
      "Nothing was written.",
  );
}
