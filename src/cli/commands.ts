import type { Command } from "./command.ts";
import { demo } from "./demo.ts";
import { put } from "./put.ts";
import { stats } from "./stats.ts";
import { work } from "./work.ts";

/** In the order of the help. */
export const COMMANDS: readonly Command[] = [demo, put, work, stats];
