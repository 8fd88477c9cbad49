import { existsSync } from "node:fs";
import path from "node:path";
import { RemoteObject } from "../../support/remote-object.ts";
import versions from "../python/versions.json" with { type: "json" };

/** The version of the Python package whose behaviour is promised. */
export const CURRENT: string = versions.current;

/** Every version that could be installed, the oldest first. */
export const INSTALLED: readonly string[] = [...versions.older, CURRENT].filter((version) =>
  existsSync(interpreterOf(version)),
);

/** The Python that has this version of the package. */
export function interpreterOf(version: string): string {
  const parts = process.platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"];
  return path.resolve(".interop", version, ...parts);
}

/** An object of the Python package in a process of its own. `commands` is a module of test/interop/python. */
export class PythonObject extends RemoteObject {
  constructor(commands: string, input: object, version: string = CURRENT) {
    super("../interop/python/peer.py", { commands, ...input }, { interpreter: interpreterOf(version) });
  }
}

export interface PythonJob {
  readonly id: number;
  /** The payload as Python's `json.dumps` writes it. */
  readonly text: string;
  /** Deliveries before this one. */
  readonly attempts: number;
  readonly receipt: string;
  /** Seconds since the epoch. */
  readonly leaseExpiresAt: number;
}

export interface PythonFailed {
  readonly id: number;
  readonly text: string;
  readonly raw: string;
  readonly attempts: number;
  readonly reason: string;
  readonly category: string | null;
  readonly last_error: string | null;
  readonly decode_error: string | null;
}

/** Keyword arguments of Python; seconds. */
export interface PythonQueueOptions {
  readonly name?: string;
  readonly lease_seconds?: number;
  readonly max_retries?: number;
  readonly max_pending_jobs?: number;
}

export class PythonQueue extends PythonObject {
  constructor(location: string, options: PythonQueueOptions = {}, version?: string) {
    super("queue_commands", { location, options }, version);
  }

  put(data: unknown, options: { job_id?: string; block?: boolean; timeout?: number } = {}): Promise<number> {
    return this.call("put", data, options);
  }

  get(options: { block?: boolean; timeout?: number } = { block: false }): Promise<PythonJob> {
    return this.call("get", options);
  }

  stats(): Promise<{ ready: number; processing: number; acked: number; failed: number }> {
    return this.call("stats");
  }

  listFailed(): Promise<PythonFailed[]> {
    return this.call("list_failed");
  }
}
