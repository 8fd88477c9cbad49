import { mkdirSync } from "node:fs";
import path from "node:path";
import { tempDirectory } from "../../support/temp.ts";

/** Where the processes of a round meet: a queue's directory, and beside it one for their histories. */
export interface Stage {
  /** Holds both. */
  readonly directory: string;
  readonly location: string;
  readonly histories: string;
}

export function newStage(): Stage {
  const directory = tempDirectory();
  const stage = { directory, location: path.join(directory, "queue"), histories: path.join(directory, "histories") };
  mkdirSync(stage.histories);
  return stage;
}
