import { Program } from "./program.ts";

/** A job as it is told to another process. */
export interface RemoteJob {
  readonly id: number;
  readonly receipt: string;
  readonly attempt: number;
  readonly data: unknown;
  readonly jobId: string | undefined;
}

interface Answer {
  readonly result?: unknown;
  readonly error?: { readonly name: string; readonly code: string; readonly message: string };
}

/** A queue in a process of its own, whose methods can be called from here. */
export class RemoteQueue extends Program {
  #calls = 0;

  constructor(location: string, options: object = {}) {
    super("queue.mjs", { location, options });
  }

  /** Resolves to what the method gave; rejects with an error that has the `name` and `code` of the other one. */
  async call<T = unknown>(method: string, ...args: unknown[]): Promise<T> {
    const call = ++this.#calls;
    this.tell({ call, method, args });
    const { result, error } = (await this.hears(`answer ${call}`)) as unknown as Answer;
    if (error !== undefined) throw Object.assign(new Error(error.message), error);
    return result as T;
  }

  get(options: object = {}): Promise<RemoteJob> {
    return this.call<RemoteJob>("get", options);
  }

  getMany(limit: number, options: object = {}): Promise<RemoteJob[]> {
    return this.call<RemoteJob[]>("getMany", limit, options);
  }
}
