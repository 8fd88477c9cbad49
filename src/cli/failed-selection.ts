import { type FailedDetails, NotFoundError } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { type Command, JSON_REPORT } from "./command.ts";
import { FAILED_FILTER, filterOf } from "./failed-filter.ts";
import { EXIT, Misuse } from "./failures.ts";
import { print, printJson, tell } from "./output.ts";
import type { Holder, Place } from "./place.ts";
import { again } from "./queue-access.ts";
import { jobs, printable } from "./wording.ts";

type Selected = { readonly id: number } | ReturnType<typeof filterOf>;

/** What is to be done with dead letters, and what to say of it. */
interface Treatment {
  readonly action: "retry" | "purge";
  readonly summary: string;
  /** The name of the count in the report for programs. */
  readonly counted: string;
  /** "ready again:" */
  readonly told: string;
  treat(holder: Holder<unknown>, which: Selected): Promise<number>;
}

/** The command that does it with dead letters. */
export function selecting<Letter extends FailedDetails>(place: Place<Letter>, treatment: Treatment): Command {
  const name = `${place.prefix}failed ${treatment.action}`;
  const [usual, other] = place.typed;
  return {
    name,
    summary: treatment.summary,
    operands: "<location> [ID…]",
    options: {
      ...place.options,
      all: { help: `All dead letters of the ${place.kind}.` },
      ...FAILED_FILTER,
      json: JSON_REPORT,
    },
    examples: [
      `localqueue ${name} ${usual} 17 23`,
      `localqueue ${name} ${usual} --reason retries_exhausted`,
      `localqueue ${name} ${other} --all`,
    ],
    run: (args) => treatSelected(place, args, name, treatment),
  };
}

/** Does it with those that were named by their ids, or by a filter; exit code 1 if an id is unknown. */
async function treatSelected<Letter extends FailedDetails>(
  place: Place<Letter>,
  args: Arguments,
  command: string,
  { counted, told, treat }: Treatment,
): Promise<number> {
  const { ids } = args;
  const isFiltered = ["all", "reason", "category"].some((option) => args.has(option));
  if (ids.length > 0 && isFiltered) throw new Misuse("Give ids, or --all or a filter, not both.");
  if (ids.length === 0 && !isFiltered) throw nothingSelected(args, command);
  const unknown: number[] = [];
  const count = await place.inspect(args, async (holder) => {
    if (ids.length === 0) return treat(holder, filterOf(args));
    let sum = 0;
    for (const id of new Set(ids)) {
      sum += await treat(holder, { id }).catch((error: unknown) => {
        if (!(error instanceof NotFoundError)) throw error;
        unknown.push(id);
        tell(`NOT_FOUND: There is no dead letter ${id} in ${printable(place.name(args))}.`);
        return 0;
      });
    }
    return sum;
  });
  if (args.has("json")) printJson({ [counted]: count, unknown });
  else print(`${jobs(count, place.unit)} ${told} ${place.title(args)}`);
  return unknown.length === 0 ? EXIT.done : EXIT.failed;
}

function nothingSelected(args: Arguments, command: string): Misuse {
  return new Misuse(`Which dead letters? Type one of:
  ${again(args, command)} ID…
  ${again(args, command, "--reason", "retries_exhausted")}
  ${again(args, command, "--all")}`);
}
