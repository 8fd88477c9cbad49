import { randomInt } from "node:crypto";
import type { Connection } from "./connection.ts";

/** So many engines are remembered, the last that came. */
const REMEMBERED = 1000;

/** Stands for the number of a row that was there, and is gone. */
const LOST = -1;

/**
 * Each engine has a row in the file, and each of its transactions that changes anything writes its number there. After
 * a COMMIT that failed the row tells whether it happened, whatever became of the jobs since: nobody else writes it.
 */
export class CommitRecord {
  readonly #connection: Connection;
  readonly #engine = randomInt(2 ** 48 - 1);
  /** Where the row is, if it is there. */
  #arrival = 0;
  #number = 0;
  /** Whether the last transaction that wrote found the row. */
  #entered = false;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Within a transaction, at its end. One that changed nothing stays one: others would look what there is to see. */
  write(): void {
    if (!this.#connection.hasChanges()) return;
    this.#number++;
    const row = { arrival: this.#arrival, engine: this.#engine, number: this.#number };
    this.#entered = this.#connection.statements.recordCommit.run(row).changes > 0;
    if (!this.#entered) this.#enter(this.#number);
    this.#connection.noteChanges();
  }

  /**
   * Within the next transaction: whether the last one that wrote is in the file; `undefined` when its row is gone. This
   * one writes a page in any case: what a failed COMMIT may have left in the log cannot come true after it. But it
   * leaves the number alone, so that one may look again if its own COMMIT fails.
   */
  look(): boolean | undefined {
    const { recordedCommit, recordLook } = this.#connection.statements;
    const row = recordedCommit.get({ engine: this.#engine });
    const number = Number(row?.["number"] ?? (this.#entered ? LOST : 0));
    if (recordLook.run({ engine: this.#engine }).changes === 0) this.#enter(number);
    this.#connection.noteChanges();
    return number === LOST ? undefined : number === this.#number;
  }

  #enter(number: number): void {
    const { recordEngine, forgetEngines } = this.#connection.statements;
    this.#arrival = recordEngine.run({ engine: this.#engine, number }).lastInsertRowid;
    forgetEngines.run({ last: this.#arrival - REMEMBERED });
  }
}
