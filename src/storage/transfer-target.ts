import { StorageError } from "../errors.ts";
import type { QueueCounts } from "./storage.ts";
import {
  countsIn,
  MESSAGES,
  TABLES,
  type TransferDatabase,
  type TransferTable,
  type Value,
  type WholeRow,
} from "./transfer.ts";
import type { SourceFacts } from "./transfer-source.ts";

/** What was found of an earlier attempt. */
export interface Attempt {
  /** Of all that was moved, if everything was. */
  readonly done: string | undefined;
  /** Of the slices that have been written. */
  readonly digests: readonly string[];
}

const ATTEMPTS = "localqueue_migrations";
const SLICES = "localqueue_migration_slices";
const MAKE_ATTEMPTS = `CREATE TABLE IF NOT EXISTS ${ATTEMPTS} (source TEXT PRIMARY KEY, digest TEXT)`;

/** Where the rows of a table are kept apart. */
const apart = ({ name }: TransferTable): string => `localqueue_migrating_${name}`;

/**
 * Where the rows go. They are kept apart, where no worker sees them, until the last step moves all of them in. What
 * was moved is remembered, so that nothing is moved twice.
 */
export class TransferTarget {
  readonly #database: TransferDatabase;

  constructor(database: TransferDatabase) {
    this.#database = database;
  }

  /** Finds the attempt to move from this source, or begins one. Rejects while there is one from another source. */
  begin(source: string): Promise<Attempt> {
    return this.#database.transaction(async () => {
      await this.#query(MAKE_ATTEMPTS);
      const attempts = await this.#query(`SELECT source, digest FROM ${ATTEMPTS}`);
      const ours = attempts.find((attempt) => attempt["source"] === source);
      const done = ours?.["digest"] ?? undefined;
      if (done !== undefined) return { done: String(done), digests: [] };
      const other = attempts.find((attempt) => attempt["digest"] === null && attempt !== ours);
      if (other !== undefined) throw this.#refusal(`A migration from ${other["source"]} is not finished. ${RESTART}`);
      if (ours === undefined) {
        await this.#query(`INSERT INTO ${ATTEMPTS} (source) VALUES (${this.#text(1)})`, [source]);
        await this.#query(`CREATE TABLE ${SLICES} (number INTEGER PRIMARY KEY, digest TEXT NOT NULL)`);
        for (const table of TABLES) {
          await this.#query(`CREATE TABLE ${apart(table)} AS SELECT * FROM ${table.name} LIMIT 0`);
        }
      }
      const slices = await this.#query(`SELECT digest FROM ${SLICES} ORDER BY number`);
      return { done: undefined, digests: slices.map(({ digest }) => String(digest)) };
    });
  }

  /** Adds a slice, and its digest. */
  write(table: TransferTable, rows: readonly WholeRow[], digest: string): Promise<void> {
    return this.#database.transaction(async () => {
      await this.#database.insert(apart(table), table, rows);
      await this.#query(`INSERT INTO ${SLICES} SELECT coalesce(max(number), 0) + 1, ${this.#text(1)} FROM ${SLICES}`, [
        digest,
      ]);
    });
  }

  /** Forgets the attempt that is not finished, from whatever source, and what it wrote; and all that was from this one. */
  discard(source: string): Promise<void> {
    return this.#database.transaction(async () => {
      await this.#query(MAKE_ATTEMPTS);
      await this.#query(`DELETE FROM ${ATTEMPTS} WHERE digest IS NULL OR source = ${this.#text(1)}`, [source]);
      await this.#drop();
    });
  }

  /**
   * Makes all that was written part of the database, in one transaction, or nothing: not if the counts are not those of
   * the source, and not if something of it is there already.
   */
  finish(source: string, digest: string, { counts, highestId }: SourceFacts): Promise<void> {
    return this.#database.transaction(async () => {
      for (const table of TABLES) await this.#refuseIfTaken(table);
      const copied = await countsIn(this.#database, apart(MESSAGES));
      assertSame(counts, copied);
      for (const table of TABLES) {
        const columns = Object.keys(table.columns).join(", ");
        await this.#query(
          `INSERT INTO ${table.name} (${columns}) SELECT ${columns} FROM ${apart(table)} ORDER BY ${table.key.join(", ")}`,
        );
      }
      await this.#database.count(apart(MESSAGES));
      await this.#database.raiseHighestId(highestId);
      const done = `UPDATE ${ATTEMPTS} SET digest = ${this.#text(1)} WHERE source = ${this.#text(2)}`;
      await this.#query(done, [digest, source]);
      await this.#drop();
    }, "exclusive");
  }

  async #drop(): Promise<void> {
    for (const name of [SLICES, ...TABLES.map(apart)]) await this.#query(`DROP TABLE IF EXISTS ${name}`);
  }

  async #refuseIfTaken(table: TransferTable): Promise<void> {
    for (const by of [table.key, ...table.unique]) {
      const same = by.map((column) => `there.${column} = moving.${column}`).join(" AND ");
      const [found] = await this.#query(
        `SELECT ${by.map((column) => `moving.${column}`).join(", ")} FROM ${apart(table)} AS moving
          JOIN ${table.name} AS there ON ${same} LIMIT 1`,
      );
      if (found === undefined) continue;
      const what = by.map((column) => `${column} ${JSON.stringify(found[column])}`).join(", ");
      throw this.#refusal(
        `The target has another row in ${table.name} with ${what}. Nothing was moved: choose an empty target, or ` +
          "remove what is in the way and try again",
      );
    }
  }

  #refusal(message: string): StorageError {
    return new StorageError("BAD_LOCATION", `${message} (${this.#database.name}).`);
  }

  #query(sql: string, values?: readonly Value[]): ReturnType<TransferDatabase["query"]> {
    return this.#database.query(sql, values);
  }

  #text(number: number): string {
    return this.#database.parameter(number, "text");
  }
}

const RESTART = "Finish that first, or forget it with --restart";

/** Nothing that was promised is missing. */
function assertSame(expected: readonly QueueCounts[], copied: readonly QueueCounts[]): void {
  if (JSON.stringify(expected) === JSON.stringify(copied)) return;
  throw new StorageError(
    "IO",
    "The counts of what was copied are not those of the source. Nothing was moved: try again with --restart.",
  );
}
