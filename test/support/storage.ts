import { onTestFinished } from "vitest";
import { openStorage } from "../../dist/storage/location.js";
import type { Delivery, Entry, Storage, StorageSettings } from "../../dist/storage/storage.js";

/** A storage that is closed when the test is over. */
export function open(directory: string, queue: string = "default", settings: Partial<StorageSettings> = {}): Storage {
  const storage = openStorage(directory, { queue, fsync: undefined, ...settings });
  onTestFinished(() => storage.close());
  return storage;
}

export function entry(payload: Uint8Array | string, options: Partial<Entry> = {}): Entry {
  return { payload, jobId: undefined, delayMs: 0, maxAttempts: 4, ...options };
}

/** Claims what is there, without waiting. */
export function claimAll(storage: Storage, limit = 1000): Promise<Delivery[]> {
  return storage.claim({ limit, leaseMs: 60_000, timeoutMs: 0 });
}

export function textOf({ payload }: Delivery): string {
  return Buffer.from(payload).toString();
}

/** What a promise rejects with; fails if it does not. */
export async function rejection(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it was expected to reject");
}
