import { LeaseExpiredError } from "./errors.ts";
import { monotonicNow } from "./timers.ts";

/** How the run of a handler ended. */
export type Result =
  | { readonly kind: "returned"; readonly value: unknown }
  | { readonly kind: "threw"; readonly error: unknown }
  | { readonly kind: "timed out"; readonly error: Error }
  /** The loop is stopping, and all that the handler threw was the abort. */
  | { readonly kind: "interrupted" }
  | { readonly kind: "lease lost" }
  /** The loop has stopped; the handler still runs, and keeps its lease until that expires. */
  | { readonly kind: "abandoned" };

/** What a handler may look at besides its job. */
export interface HandlerContext {
  /** Aborts when the lease is lost, when the handler has run for `timeoutMs`, and at the end of the grace of `stop()`. */
  readonly signal: AbortSignal;
}

/** The abort of a handler that ran for too long. */
export class TimeoutError extends Error {
  static {
    TimeoutError.prototype.name = "TimeoutError";
  }
}

/** The abort of a handler whose worker stops. */
export class AbortError extends Error {
  static {
    AbortError.prototype.name = "AbortError";
  }
  /** As the abort errors of Node itself. */
  readonly code = "ABORT_ERR";
}

/** A class, since an object with a getter of its own would get a hidden class of its own, which is collected late. */
class Context implements HandlerContext {
  readonly #signal: () => AbortSignal;

  constructor(signal: () => AbortSignal) {
    this.#signal = signal;
  }

  get signal(): AbortSignal {
    return this.#signal();
  }
}

/**
 * One run of a handler. What happens around it overrules what it returns or throws: lease lost > timed out >
 * interrupted > the handler's own result.
 */
export class HandlerRun {
  readonly #timeoutMs: number | undefined;
  /** Made when it is first needed: that takes longer than all the rest here. */
  #controller: AbortController | undefined;
  #startedAt = 0;
  #settle: (result: Result) => void = () => {};
  #leaseLost = false;
  #timeout: TimeoutError | undefined;
  #interruption: AbortError | undefined;

  constructor(timeoutMs: number | undefined) {
    this.#timeoutMs = timeoutMs;
  }

  /** Never rejects. Resolves before the handler ends if the run is overdue or abandoned. */
  start(handler: (context: HandlerContext) => unknown): Promise<Result> {
    const context = new Context(() => this.#abortable().signal);
    this.#startedAt = monotonicNow();
    return new Promise((resolve) => {
      this.#settle = resolve;
      invoke(handler, context).then(
        (value) => resolve(this.#judge({ kind: "returned", value })),
        (error: unknown) => resolve(this.#judge({ kind: "threw", error })),
      );
    });
  }

  leaseLost(): void {
    this.#leaseLost = true;
    this.#abortable().abort(new LeaseExpiredError("The lease of the job was lost while its handler ran"));
  }

  timedOut(): void {
    this.#timeout ??= new TimeoutError(`The handler ran longer than ${this.#timeoutMs} ms`);
    this.#abortable().abort(this.#timeout);
  }

  /** The handler ignored the abort, too: what it gives later comes to nothing. */
  overdue(): void {
    this.timedOut();
    this.#settle(this.#judge({ kind: "abandoned" }));
  }

  interrupt(): void {
    this.#interruption = new AbortError("The worker is stopping");
    this.#abortable().abort(this.#interruption);
  }

  abandon(): void {
    this.#settle({ kind: "abandoned" });
  }

  #abortable(): AbortController {
    this.#controller ??= new AbortController();
    return this.#controller;
  }

  #judge(own: Result): Result {
    if (this.#leaseLost) return { kind: "lease lost" };
    // A handler that blocked the event loop is here before the news of its time-out.
    if (this.#timeoutMs !== undefined && monotonicNow() - this.#startedAt >= this.#timeoutMs) this.timedOut();
    if (this.#timeout !== undefined) return { kind: "timed out", error: this.#timeout };
    return this.#interruption !== undefined && own.kind === "threw" && this.#isAbort(own.error)
      ? { kind: "interrupted" }
      : own;
  }

  /** Either the reason of the signal, or what an interface of Node makes of it. */
  #isAbort(error: unknown): boolean {
    try {
      return error === this.#interruption || (error as Error | undefined)?.name === "AbortError";
    } catch {
      return false;
    }
  }
}

async function invoke(handler: (context: HandlerContext) => unknown, context: HandlerContext): Promise<unknown> {
  return handler(context);
}
