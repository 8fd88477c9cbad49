import type { FailedDetails } from "../index.ts";
import type { Command } from "./command.ts";
import { selecting } from "./failed-selection.ts";
import type { Place } from "./place.ts";

export function failedPurge<Letter extends FailedDetails>(place: Place<Letter>): Command {
  return selecting(place, {
    action: "purge",
    summary: `Delete dead letters of a ${place.kind} for ever.`,
    counted: "purged",
    told: "deleted:",
    treat: (holder, which) => holder.purgeFailed(which),
  });
}
