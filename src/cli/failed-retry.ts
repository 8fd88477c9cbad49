import type { FailedDetails } from "../index.ts";
import type { Command } from "./command.ts";
import { selecting } from "./failed-selection.ts";
import type { Place } from "./place.ts";

export function failedRetry<Letter extends FailedDetails>(place: Place<Letter>): Command {
  return selecting(place, {
    action: "retry",
    summary: `Make dead letters of a ${place.kind} ready again, with as many deliveries as when they were put.`,
    counted: "retried",
    told: "ready again:",
    treat: (holder, which) => holder.retryFailed(which),
  });
}
