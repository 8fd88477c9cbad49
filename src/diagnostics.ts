import { readFileSync } from "node:fs";
import { jsonSerializer, pythonJsonSerializer } from "./serializer.ts";
import type { StorageDiagnostics } from "./storage/storage.ts";

/** How a queue is doing: flat, and the same as JSON. Durations are milliseconds; `null` = there is none. */
export interface QueueDiagnostics extends StorageDiagnostics {
  /** The version of this report: it grows when a field changes its meaning. */
  readonly schemaVersion: number;
  readonly packageVersion: string;
  readonly queueName: string;
  /** `localqueue.jsonSerializer`, `localqueue.pythonJsonSerializer`, or the name of the serializer's class. */
  readonly serializerIdentity: string;
  readonly leaseMs: number;
  readonly maxRetries: number;
  readonly maxPendingJobs: number | null;
  /** Jobs that are ready or being processed, and how many more may be; `null` = any number. */
  readonly pendingJobs: number;
  readonly availableSlots: number | null;
}

/** The options of the queue object that was asked. */
export interface QueueSettings {
  readonly name: string;
  readonly serializer: object;
  readonly leaseMs: number;
  readonly maxRetries: number;
  readonly maxPendingJobs?: number | undefined;
}

const SCHEMA_VERSION = 1;
/** Done jobs are worth a word when there are so many, and so many times the work. */
const MANY_ACKED = 100_000;
const TIMES_THE_WORK = 10;

export function queueDiagnostics(storage: StorageDiagnostics, settings: QueueSettings): QueueDiagnostics {
  const { name, serializer, leaseMs, maxRetries, maxPendingJobs = null } = settings;
  const { warnings, ...facts } = storage;
  const pendingJobs = storage.ready + storage.processing;
  const outgrown = outgrownBy(storage.acked, pendingJobs);
  return {
    schemaVersion: SCHEMA_VERSION,
    packageVersion: packageVersion(),
    queueName: name,
    serializerIdentity: identityOf(serializer),
    leaseMs,
    maxRetries,
    maxPendingJobs,
    ...facts,
    pendingJobs,
    availableSlots: maxPendingJobs === null ? null : Math.max(0, maxPendingJobs - pendingJobs),
    warnings: outgrown === undefined ? warnings : [...warnings, outgrown],
  };
}

function outgrownBy(acked: number, pendingJobs: number): string | undefined {
  if (acked < MANY_ACKED || acked <= TIMES_THE_WORK * pendingJobs) return undefined;
  return (
    `${acked} acknowledged jobs are kept, for ${pendingJobs} that are still to be done. Remove old ones with ` +
    "`purge({ olderThanMs })` or `localqueue purge`, or have that done with the option `retention`."
  );
}

function identityOf(serializer: object): string {
  if (serializer === jsonSerializer) return "localqueue.jsonSerializer";
  if (serializer === pythonJsonSerializer) return "localqueue.pythonJsonSerializer";
  const { name } = (serializer.constructor ?? {}) as { name?: unknown };
  return typeof name === "string" && name !== "" ? name : "Object";
}

function packageVersion(): string {
  try {
    return JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;
  } catch {
    return "unknown"; // bundled
  }
}
