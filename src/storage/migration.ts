import { createHash } from "node:crypto";
import { StorageError } from "../errors.ts";
import { placeOf } from "./location.ts";
import type { QueueCounts } from "./storage.ts";
import { TABLES, type TransferDatabase, type Value } from "./transfer.ts";
import { factsOf, readSlice } from "./transfer-source.ts";
import { TransferTarget } from "./transfer-target.ts";

/** Moves everything from one location to another: a directory, or a schema of a PostgreSQL database. */

interface MigrationProgress {
  readonly phase: "copying" | "moving in";
  readonly done: number;
  readonly total: number;
}

export interface MigrationOptions {
  /** Forgets what an earlier attempt has written to the target, from whatever source. */
  readonly restart: boolean;
  /** Ends it between two slices; rejects with the reason. The next attempt goes on from there. */
  readonly signal: AbortSignal;
  readonly onProgress: (progress: MigrationProgress) => void;
}

export interface MigrationReport {
  /** By queue, as they are on both sides. */
  readonly queues: readonly QueueCounts[];
  readonly jobs: number;
  /** Whether an earlier attempt had done it already. */
  readonly wasDone: boolean;
}

/**
 * Rows are copied in slices, each with its digest in one transaction, to where no worker sees them. The last step
 * compares the counts and moves them in, in one transaction. So at any moment either nothing has been moved or all of
 * it, and whoever is killed can be started again: it reads the source from the beginning, and writes what is not there
 * yet. Where the digests show that the source is no longer as it was, it begins anew. The source is only read, and
 * nobody can change it meanwhile. Rejects with `StorageError`.
 */
export async function migrate(from: string, to: string, options: MigrationOptions): Promise<MigrationReport> {
  const source = await open(from);
  try {
    const target = await open(to);
    try {
      assertDifferent(source, target);
      return await source.transaction(() => move(source, target, options), "exclusive");
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

async function move(
  source: TransferDatabase,
  database: TransferDatabase,
  { restart, signal, onProgress }: MigrationOptions,
): Promise<MigrationReport> {
  const facts = await factsOf(source);
  const jobs = facts.counts.reduce((sum, one) => sum + one.ready + one.processing + one.acked + one.failed, 0);
  const report = { queues: facts.counts, jobs };
  const target = new TransferTarget(database);
  if (restart) await target.discard(source.name);
  const copied = (done: number): void => {
    signal.throwIfAborted();
    onProgress({ phase: "copying", done, total: jobs });
  };
  for (;;) {
    const { done, digests: written } = await target.begin(source.name);
    const write = done === undefined ? target.write.bind(target) : async () => {};
    const digests = await copy(source, written, write, copied);
    if (digests !== undefined) {
      const digest = digestOf("all", digests);
      if (done === digest) return { ...report, wasDone: true };
      if (done === undefined) {
        onProgress({ phase: "moving in", done: jobs, total: jobs });
        await target.finish(source.name, digest, facts);
        return { ...report, wasDone: false };
      }
    }
    await target.discard(source.name);
  }
}

/**
 * Copies the slices that are not there yet. Resolves to the digests of all, or to `undefined` if those that are there
 * are not what is in the source now.
 */
async function copy(
  source: TransferDatabase,
  written: readonly string[],
  write: TransferTarget["write"],
  copied: (jobs: number) => void,
): Promise<string[] | undefined> {
  const digests: string[] = [];
  let jobs = 0;
  for (const table of TABLES) {
    let rows = await readSlice(source, table, undefined);
    while (rows.length > 0) {
      const digest = digestOf(table.name, rows.flat());
      const known = written[digests.length];
      if (known === undefined) await write(table, rows, digest);
      else if (known !== digest) return undefined;
      digests.push(digest);
      if (table.name === "messages") jobs += rows.length;
      copied(jobs);
      rows = await readSlice(source, table, rows.at(-1));
    }
  }
  return digests.length < written.length ? undefined : digests;
}

function digestOf(what: string, values: readonly Value[]): string {
  const hash = createHash("sha256").update(what);
  for (const value of values) {
    // With its length before it, no value runs into the next.
    const bytes = typeof value === "string" ? Buffer.from(value) : value;
    hash.update(`:${bytes?.length}:`);
    if (bytes !== null) hash.update(bytes);
  }
  return hash.digest("hex");
}

function assertDifferent(source: TransferDatabase, target: TransferDatabase): void {
  if (source.name !== target.name) return;
  throw new StorageError("BAD_LOCATION", `Both locations are the same: ${source.name}. Choose another one to move to.`);
}

async function open(location: string): Promise<TransferDatabase> {
  const place = placeOf(location);
  if (typeof place === "string") return new (await import("./sqlite/transfer-file.ts")).TransferFile(place);
  return (await import("./postgres/transfer-schema.ts")).openTransferSchema(place);
}
