import { Program } from "./program.ts";

interface Answer {
  readonly result?: unknown;
  readonly error?: { readonly name: string; readonly code: string; readonly message: string };
}

/** An object in a process of its own, whose methods can be called from here. */
export class RemoteObject extends Program {
  #calls = 0;

  /** Resolves to what the method gave; rejects with an error that has the `name` and `code` of the other one. */
  async call<T = unknown>(method: string, ...args: unknown[]): Promise<T> {
    const call = ++this.#calls;
    this.tell({ call, method, args });
    const { result, error } = (await this.hears(`answer ${call}`)) as unknown as Answer;
    if (error !== undefined) throw Object.assign(new Error(error.message), error);
    return result as T;
  }
}
