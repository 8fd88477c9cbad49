import type { QueueStats } from "../index.ts";
import { grouped, jobs } from "./wording.ts";

const MANY = 100_000;
const TIMES_THE_WORK = 10;

/** What to do about done jobs that are far more than those to be done; `undefined` = nothing. */
export function outgrown({ ready, processing, acked }: QueueStats, purge: string, unit?: string): string | undefined {
  const work = ready + processing;
  if (acked < MANY || acked <= TIMES_THE_WORK * work) return undefined;
  return `${grouped(acked)} acked ${unit ?? "job"}s are kept, ${jobs(work, unit)} to do. To remove old ones: ${purge} --older-than 30d`;
}
