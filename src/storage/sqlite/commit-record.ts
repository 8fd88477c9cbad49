import { randomInt } from "node:crypto";
import type { Connection } from "./connection.ts";

/** So many engines are remembered: far more than can come while one looks what became of its COMMIT. */
const REMEMBERED = 1000;

/**
 * Each engine has a row in the file, and each of its transactions that changes anything writes its number there. After
 * a COMMIT that failed the row tells whether it happened, whatever became of the jobs since: nobody else writes it.
 */
export class CommitRecord {
  readonly #connection: Connection;
  readonly #engine = randomInt(2 ** 48 - 1);
  #number = 0;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Within a transaction, at its end. One that changed nothing stays one: others would look what there is to see. */
  write(): void {
    if (!this.#connection.hasChanges()) return;
    this.overwrite();
    this.#connection.noteChanges();
  }

  /** As `write`, in any case: what a failed COMMIT may have left in the log cannot come true after this one. */
  overwrite(): void {
    this.#number++;
    const row = { engine: this.#engine, number: this.#number };
    const { recordCommit, recordEngine, forgetEngines } = this.#connection.statements;
    if (recordCommit.run(row).changes > 0) return;
    recordEngine.run(row);
    forgetEngines.run({ remembered: REMEMBERED });
  }

  /** Within the next transaction: whether the last one that wrote is in the file. */
  isLastInFile(): boolean {
    const row = this.#connection.statements.recordedCommit.get({ engine: this.#engine });
    return row?.["number"] === this.#number;
  }
}
