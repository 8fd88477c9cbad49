import type { Command } from "./command.ts";
import { SELECTION, treatSelected } from "./failed-selection.ts";

export const failedRetry: Command = {
  name: "failed retry",
  summary: "Make dead letters ready again, with as many deliveries as when they were put.",
  operands: "<location> [ID…]",
  options: SELECTION,
  examples: [
    "localqueue failed retry ./data 17 23",
    "localqueue failed retry ./data --reason retries_exhausted",
    "localqueue failed retry ./data --queue emails --all",
  ],
  run: (args) =>
    treatSelected(args, {
      command: "failed retry",
      counted: "retried",
      told: "ready again:",
      treat: (queue, which) => queue.retryFailed("id" in which ? which.id : which),
    }),
};
