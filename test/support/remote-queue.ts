import { RemoteObject } from "./remote-object.ts";

/** A job as it is told to another process. */
export interface RemoteJob {
  readonly id: number;
  readonly receipt: string;
  readonly attempt: number;
  readonly data: unknown;
  readonly jobId: string | undefined;
}

/** A queue in a process of its own, whose methods can be called from here. */
export class RemoteQueue extends RemoteObject {
  constructor(location: string, options: object = {}) {
    super("queue.mjs", { location, options });
  }

  get(options: object = {}): Promise<RemoteJob> {
    return this.call<RemoteJob>("get", options);
  }

  getMany(limit: number, options: object = {}): Promise<RemoteJob[]> {
    return this.call<RemoteJob[]>("getMany", limit, options);
  }
}
