import {
  boolean,
  type Check,
  type Full,
  integer,
  type KnownOptions,
  type OptionsReader,
  oneOf,
  option,
  optional,
  optionsReader,
  required,
  text,
  wrongType,
} from "./options.ts";
import { age } from "./queue-options.ts";
import { FAILURE_REASONS, type FailureReason } from "./state.ts";
import type { FailedSelection } from "./storage/storage.ts";

/** Which finished jobs to delete. */
export interface PurgeOptions {
  /** Those that were last changed more than this many milliseconds ago, up to ten years. */
  readonly olderThanMs: number;
  /** Dead letters, too. Default `false`. */
  readonly includeFailed?: boolean | undefined;
}

/** Dead letters of a cause; what is absent does not matter. */
export interface FailedFilter {
  readonly reason?: FailureReason | undefined;
  /** As it was given to `Reject` or `fail`. */
  readonly category?: string | undefined;
}

export const readPurgeOptions: OptionsReader<Full<PurgeOptions, "includeFailed">> = optionsReader({
  olderThanMs: required(age),
  includeFailed: option(boolean, false),
});

export const jobNumber: Check<number> = integer(1, Number.MAX_SAFE_INTEGER);

export const failedFilter: KnownOptions<Full<FailedFilter>> = {
  reason: optional(oneOf(FAILURE_REASONS)),
  category: optional(text(200)),
};
const readFilter = optionsReader(failedFilter);
const readOne = optionsReader<{ readonly id: number }>({ id: required(jobNumber) });

/** One dead letter by its id, or those of a filter. */
export function readFailedSelection(which: unknown): FailedSelection {
  if (typeof which === "number") return { id: jobNumber(which, "id") };
  if (typeof which !== "object" || which === null) {
    throw wrongType("which", "the id of a dead letter, or a filter (`{}` = all)", which);
  }
  // An id that is there but undefined is a mistake, and not everything.
  return "id" in which ? readOne(which, "which") : readFilter(which, "which");
}
