import { finite, LONGEST_DELAY_MS } from "./options.ts";
import { delayAfter, isReject, namedCategory, requestedDelay } from "./retry.ts";
import type { FailureReason } from "./state.ts";
import type { Settlement } from "./storage/storage.ts";
import { describeThrown } from "./thrown.ts";
import { type CheckedWorkerOptions, defaultRetry, type ErrorClass } from "./worker-options.ts";

const usableDelay = finite(0, LONGEST_DELAY_MS);

/** What becomes of a delivery whose handler failed: `Reject` > `permanentErrors` > `Retry` > the retry policy. */
export class FailurePolicy {
  readonly #options: Pick<CheckedWorkerOptions, "permanentErrors" | "retry">;
  readonly #report: (fault: unknown) => void;

  /** `report` is told of a retry function that does not work. */
  constructor(options: Pick<CheckedWorkerOptions, "permanentErrors" | "retry">, report: (fault: unknown) => void) {
    this.#options = options;
    this.#report = report;
  }

  /** For what the handler threw at this attempt, 1 being the first. */
  threw(attempt: number, error: unknown): Settlement {
    const lastError = describeThrown(error);
    if (isReject(error)) return { event: "fail", lastError, reason: "rejected", category: namedCategory(error) };
    if (this.#options.permanentErrors.some((errorClass) => isInstance(error, errorClass))) {
      return { event: "fail", lastError, reason: "permanent_handler_error", category: undefined };
    }
    return this.#retryLater(attempt, error, "retries_exhausted");
  }

  timedOut(attempt: number, error: unknown): Settlement {
    return this.#retryLater(attempt, error, "handler_timeout");
  }

  #retryLater(attempt: number, error: unknown, exhaustedReason: FailureReason): Settlement {
    const delayMs = requestedDelay(error) ?? this.#delayMs(attempt, error);
    return { event: "nack", delayMs, lastError: describeThrown(error), exhaustedReason };
  }

  #delayMs(attempt: number, error: unknown): number {
    const { retry } = this.#options;
    if (typeof retry !== "function") return delayAfter(retry, attempt);
    try {
      const delayMs: unknown = retry(attempt, error);
      if (delayMs instanceof Promise) delayMs.catch(() => {}); // it is of no use, whatever comes of it
      return Math.round(usableDelay(delayMs, "what `retry` returned"));
    } catch (fault) {
      this.#report(fault);
      return delayAfter(defaultRetry, attempt);
    }
  }
}

function isInstance(error: unknown, errorClass: ErrorClass): boolean {
  try {
    return error instanceof errorClass;
  } catch {
    return false; // a `Symbol.hasInstance` or a proxy of the user's
  }
}
