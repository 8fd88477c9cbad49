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
  required,
  wrongType,
} from "./options.ts";
import { type FailedFilter, failedFilter, jobNumber } from "./purge-options.ts";
import { type JobState, STATES } from "./state.ts";
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
export interface ListFailedOptions extends FailedFilter {
  /** How many at most, 0 to 10,000. Default 100. */
  readonly limit?: number | undefined;
  /** How many to pass over. It costs as much as listing them: prefer `afterId`. Default 0. */
  readonly offset?: number | undefined;
  /** Only dead letters with a higher id: that of the last one on the page before. */
  readonly afterId?: number | undefined;
}

const page: Check<number> = integer(0, 10_000);
const any: Check<number> = integer(0, Number.MAX_SAFE_INTEGER);

const readFindOptions: OptionsReader<Full<FindOptions>> = optionsReader({
  id: optional(jobNumber),
  jobId: itemOptions.jobId,
});

export function readFind(options: unknown): JobKey {
  const { id, jobId } = readFindOptions(options);
  if (id !== undefined && jobId === undefined) return { id };
  if (jobId !== undefined && id === undefined) return { jobId };
  throw wrongType("options", "either `{ id }` or `{ jobId }`", options);
}

export const readList: OptionsReader<Full<ListOptions, "limit">> = optionsReader({
  state: required(oneOf(STATES)),
  limit: option(page, 100),
  afterId: optional(any),
});

export const readListFailed: OptionsReader<Full<ListFailedOptions, "limit">> = optionsReader({
  limit: option(page, 100),
  offset: optional(any),
  afterId: optional(any),
  ...failedFilter,
});
