import {
  boolean,
  type Check,
  type Full,
  integer,
  oneOf,
  option,
  optional,
  optionsReader,
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

const readPurge = optionsReader({ olderThanMs: optional(age), includeFailed: option(boolean, false) });

export function readPurgeOptions(options: unknown): Full<PurgeOptions, "includeFailed"> {
  const { olderThanMs, includeFailed } = readPurge(options);
  return { olderThanMs: olderThanMs ?? age(olderThanMs, "olderThanMs"), includeFailed };
}

export const jobNumber: Check<number> = integer(1, Number.MAX_SAFE_INTEGER);

const readFilter = optionsReader<Full<FailedFilter>>({
  reason: optional(oneOf(FAILURE_REASONS)),
  category: optional(text(200)),
});
const readOne = optionsReader<{ readonly id: number }>({ id: option(jobNumber, 0) });

/** One dead letter by its id, or those of a filter. */
export function readFailedSelection(which: unknown): FailedSelection {
  if (typeof which === "number") return { id: jobNumber(which, "id") };
  if (typeof which !== "object" || which === null) {
    throw wrongType("which", "the id of a dead letter, or a filter (`{}` = all)", which);
  }
  if (!("id" in which)) return readFilter(which, "which");
  readOne(which, "which");
  return { id: jobNumber(which.id, "id") };
}
