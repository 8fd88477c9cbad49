import { NotFoundError, type SimpleQueue } from "../index.ts";
import type { Arguments, CommandOption } from "./arguments.ts";
import { JSON_REPORT, QUEUE } from "./command.ts";
import { FAILED_FILTER, filterOf } from "./failed-filter.ts";
import { EXIT, Misuse } from "./failures.ts";
import { print, printJson, tell } from "./output.ts";
import { again, inspect, queueName, queueTitle } from "./queue-access.ts";
import { jobs, printable } from "./wording.ts";

export const SELECTION: { readonly [name: string]: CommandOption } = {
  queue: QUEUE,
  all: { help: "All dead letters of the queue." },
  ...FAILED_FILTER,
  json: JSON_REPORT,
};

type Selected = { readonly id: number } | ReturnType<typeof filterOf>;

/** What is to be done with dead letters, and what to say of it. */
export interface Treatment {
  /** "failed retry" */
  readonly command: string;
  /** The name of the count in the report for programs. */
  readonly counted: string;
  /** "are ready again in" */
  readonly told: string;
  treat(queue: SimpleQueue<Uint8Array>, which: Selected): Promise<number>;
}

/** Does it with the dead letters that were named by their ids, or by a filter; exit code 1 if an id is unknown. */
export async function treatSelected(args: Arguments, { command, counted, told, treat }: Treatment): Promise<number> {
  const { ids } = args;
  const isFiltered = ["all", "reason", "category"].some((option) => args.has(option));
  if (ids.length > 0 && isFiltered) throw new Misuse("Give ids, or --all or a filter, not both.");
  if (ids.length === 0 && !isFiltered) throw nothingSelected(args, command);
  const unknown: number[] = [];
  const count = await inspect(args, async (queue) => {
    if (ids.length === 0) return treat(queue, filterOf(args));
    let sum = 0;
    for (const id of new Set(ids)) {
      sum += await treat(queue, { id }).catch((error: unknown) => {
        if (!(error instanceof NotFoundError)) throw error;
        unknown.push(id);
        tell(`NOT_FOUND: There is no dead letter ${id} in queue "${printable(queueName(args))}".`);
        return 0;
      });
    }
    return sum;
  });
  if (args.has("json")) printJson({ [counted]: count, unknown });
  else print(`${jobs(count)} ${told} ${queueTitle(args)}`);
  return unknown.length === 0 ? EXIT.done : EXIT.failed;
}

function nothingSelected(args: Arguments, command: string): Misuse {
  return new Misuse(`Which dead letters? Type one of:
  ${again(args, command)} ID…
  ${again(args, command, "--reason", "retries_exhausted")}
  ${again(args, command, "--all")}`);
}
