import type { FailureReason } from "../index.ts";
import type { Arguments, CommandOption } from "./arguments.ts";

/** The options that choose dead letters. */
export const FAILED_FILTER: { readonly [name: string]: CommandOption } = {
  reason: { value: "R", help: 'Only those with this reason, as "failed list" shows it.' },
  category: { value: "C", help: "Only those with this category." },
};

export function filterOf(args: Arguments): {
  readonly reason: FailureReason | undefined;
  readonly category: string | undefined;
} {
  // A reason that there is not is refused by the queue.
  return { reason: args.text("reason") as FailureReason | undefined, category: args.text("category") };
}
