import { itemOptions } from "./job.ts";
import {
  type Check,
  type Full,
  integer,
  type OptionsReader,
  oneOf,
  option,
  optional,
  optionsReader,
  text,
  wrongType,
} from "./options.ts";
import { FAILURE_REASONS, type FailureReason, type JobState, STATES } from "./state.ts";
import type { JobKey } from "./storage/storage.ts";

/** Which job `find` looks for: one of the two. */
export interface FindOptions {
  readonly id?: number | undefined;
  readonly jobId?: string | undefined;
}

/** Which jobs `list` lists. */
export interface ListOptions {
  /** "ready" (which includes those that wait for their time), "processing", "acked" or "failed". */
  readonly state: JobState;
  /** How many at most, 0 to 10,000. Default 100. */
  readonly limit?: number | undefined;
  /** Only jobs with a higher id: that of the last one on the page before. */
  readonly afterId?: number | undefined;
}

/** Which dead letters `listFailed` lists. */
export interface ListFailedOptions {
  /** How many at most, 0 to 10,000. Default 100. */
  readonly limit?: number | undefined;
  /** How many to pass over. It costs as much as listing them: prefer `afterId`. Default 0. */
  readonly offset?: number | undefined;
  /** Only dead letters with a higher id: that of the last one on the page before. */
  readonly afterId?: number | undefined;
  readonly reason?: FailureReason | undefined;
  readonly category?: string | undefined;
}

const page: Check<number> = integer(0, 10_000);
const any: Check<number> = integer(0, Number.MAX_SAFE_INTEGER);
const stateOf: Check<JobState> = oneOf(STATES);

const readFindOptions: OptionsReader<Full<FindOptions>> = optionsReader({
  id: optional(integer(1, Number.MAX_SAFE_INTEGER)),
  jobId: itemOptions.jobId,
});

export function readFind(options: unknown): JobKey {
  const { id, jobId } = readFindOptions(options);
  if (id !== undefined && jobId === undefined) return { id };
  if (jobId !== undefined && id === undefined) return { jobId };
  throw wrongType("options", "either `{ id }` or `{ jobId }`", options);
}

const readListOptions = optionsReader({
  state: optional(stateOf),
  limit: option(page, 100),
  afterId: optional(any),
});

export function readList(options: unknown): Full<ListOptions, "limit"> {
  const { state, ...rest } = readListOptions(options);
  return { ...rest, state: state ?? stateOf(state, "state") };
}

export const readListFailed: OptionsReader<Full<ListFailedOptions, "limit">> = optionsReader({
  limit: option(page, 100),
  offset: optional(any),
  afterId: optional(any),
  reason: optional(oneOf(FAILURE_REASONS)),
  category: optional(text(200)),
});
