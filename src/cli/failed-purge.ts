import type { Command } from "./command.ts";
import { SELECTION, treatSelected } from "./failed-selection.ts";

export const failedPurge: Command = {
  name: "failed purge",
  summary: "Delete dead letters for ever.",
  operands: "<location> [ID…]",
  options: SELECTION,
  examples: [
    "localqueue failed purge ./data 17 23",
    "localqueue failed purge ./data --reason rejected --category exit-65",
    "localqueue failed purge ./data --queue emails --all",
  ],
  run: (args) =>
    treatSelected(args, {
      command: "failed purge",
      counted: "purged",
      told: "deleted:",
      treat: (queue, which) => queue.purgeFailed(which),
    }),
};
