import type { QueueStats } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { again } from "./queue-access.ts";
import { grouped, jobs } from "./wording.ts";

const MANY = 100_000;
const TIMES_THE_WORK = 10;

/** What to do about done jobs that are far more than those to be done; `undefined` = nothing. */
export function outgrown({ ready, processing, acked }: QueueStats, args: Arguments): string | undefined {
  const work = ready + processing;
  if (acked < MANY || acked <= TIMES_THE_WORK * work) return undefined;
  const line = again(args, "purge", "--older-than", "30d");
  return `${grouped(acked)} acked jobs are kept, ${jobs(work)} to do. To remove old ones: ${line}`;
}
