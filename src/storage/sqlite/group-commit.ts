import { StorageError } from "../../errors.ts";
import { CommitRecord } from "./commit-record.ts";
import { BUSY_SLICE_MS, type Connection } from "./connection.ts";
import { isConnectionFailure, toStorageError } from "./driver.ts";
import type { Transitions } from "./transitions.ts";

interface Performable {
  /** The batch is flushed to the disk if one of its steps asks for it. */
  readonly fsync: boolean;
  /** Made of several statements that must stand or fall together. */
  readonly compound: boolean;
  /** On a full disk, see `Space`. */
  readonly refusedWhen?: "short" | "spent" | undefined;
  /** Performs its statements and keeps the result. May be called again when the batch has to be repeated. */
  execute(transitions: Transitions): void;
  fail(error: StorageError): void;
}

/** A caller's part in a batch. Nothing is answered before the batch's COMMIT returned. */
export interface Step extends Performable {
  readonly parts?: undefined;
  /** The effect is durable: answers. */
  succeed(): void;
}

/** Several steps that are performed at once. If that cannot be done, each of them is performed by itself. */
export interface Joint extends Performable {
  readonly parts: readonly Step[];
}

/** To be tried once more. */
interface Again {
  readonly rest: readonly (Step | Joint)[];
  /** Its COMMIT failed. */
  readonly committed: boolean;
}

interface Culprit {
  readonly culprit: Performable;
  readonly error: unknown;
}

/** Attempts of `BUSY_SLICE_MS` to find out what became of a failed COMMIT. */
const VERIFY_ATTEMPTS = 40;

/** Isolating one culprit after another in ever shorter batches would take quadratic time. */
const CULPRITS_BEFORE_SINGLES = 3;

/**
 * Runs the steps of many callers in one transaction. One step's misfortune is its own: the others are committed
 * without it, or run again if the transaction was lost with it. A COMMIT that fails is looked into, because it may
 * prove to have happened.
 */
export class GroupCommit {
  readonly #connection: Connection;
  readonly #transitions: Transitions;
  readonly #record: CommitRecord;

  constructor(connection: Connection, transitions: Transitions) {
    this.#connection = connection;
    this.#transitions = transitions;
    this.#record = new CommitRecord(connection);
  }

  /** Settles every step, or returns those that could not begin because the database is locked. */
  run(steps: readonly (Step | Joint)[], busyMs: number): readonly Step[] {
    let remaining = steps;
    let committed = false;
    for (let culprits = 0; remaining.length > 0; ) {
      if (culprits > CULPRITS_BEFORE_SINGLES) return this.#runSingly(apart(remaining), busyMs);
      const ended = this.#attempt(remaining, busyMs, committed);
      if (ended === "locked") return apart(remaining);
      if (ended === "settled") return [];
      if ("rest" in ended) {
        committed ||= ended.committed;
        remaining = ended.rest;
        continue;
      }
      committed = false;
      culprits++;
      // The transaction was lost, and with it the work of all: nobody but the culprit need know.
      this.#blame(ended);
      remaining = remaining.filter((step) => step !== ended.culprit);
    }
    return [];
  }

  #runSingly(steps: readonly Step[], busyMs: number): readonly Step[] {
    return steps.filter((step) => this.run([step], busyMs).length > 0);
  }

  #blame({ culprit, error }: Culprit): void {
    culprit.fail(toStorageError(error, this.#connection.file));
  }

  #attempt(
    steps: readonly (Step | Joint)[],
    busyMs: number,
    committed: boolean,
  ): "locked" | "settled" | Culprit | Again {
    const fsync = steps.some((step) => step.fsync);
    const performed: (Step | Joint)[] = [];
    const refused: Culprit[] = [];
    this.#transitions.forget(0);
    try {
      if (!this.#connection.begin(fsync, busyMs)) return "locked";
      if (this.#connection.foreignCommit) this.#transitions.startle();
      for (const step of steps) {
        const error = this.#execute(step);
        if (error === undefined) performed.push(step);
        else if (this.#connection.space.relieves(error, steps)) return this.#again(steps, error);
        else if (step.parts !== undefined) return this.#again(apart(steps), error);
        else if (this.#connection.inTransaction) refused.push({ culprit: step, error });
        else return { culprit: step, error };
      }
      this.#transitions.writeCounts();
      this.#record.write();
    } catch (error) {
      if (this.#connection.space.relieves(error, steps)) return this.#again(steps, error);
      this.#rollback(isConnectionFailure(error));
      failAll(steps, toStorageError(error, this.#connection.file));
      return "settled";
    }
    const error = this.#commit();
    if (error === undefined) succeedAll(apart(performed));
    else if (error instanceof StorageError) failAll(performed, error);
    else {
      this.#rollback(isConnectionFailure(error));
      const relieved = this.#connection.space.relieves(error, steps);
      const happened = this.#hasHappened(fsync);
      if (happened) succeedAll(apart(performed));
      else if (happened === false && (relieved || !committed))
        return { rest: this.#connection.space.refuse(steps, error), committed: true };
      else failAll(performed, toStorageError(error, this.#connection.file, happened === false ? "failed" : "unknown"));
    }
    for (const each of refused) this.#blame(each);
    return "settled";
  }

  /** What a step threw, unless the connection itself failed, which is everybody's misfortune. */
  #execute(step: Performable): unknown {
    const moves = this.#transitions.moves;
    try {
      if (step.compound) this.#connection.atomically(() => step.execute(this.#transitions));
      else step.execute(this.#transitions);
      return undefined;
    } catch (error) {
      if (isConnectionFailure(error)) throw error;
      this.#transitions.forget(moves);
      this.#transitions.startle();
      return error ?? new Error("a step failed");
    }
  }

  #again(steps: readonly (Step | Joint)[], error: unknown): Again {
    this.#rollback(isConnectionFailure(error));
    return { rest: this.#connection.space.refuse(steps, error), committed: false };
  }

  #commit(): unknown {
    try {
      this.#connection.commit();
      return undefined;
    } catch (error) {
      return error;
    }
  }

  #rollback(reopen: boolean): void {
    this.#transitions.startle();
    try {
      this.#connection.rollback();
      if (reopen) this.#connection.close();
    } catch {
      this.#connection.close();
    }
  }

  /**
   * Whether a batch whose COMMIT failed is in the file all the same; `undefined` when nobody could look. The transaction
   * that looks also writes and commits, which overwrites the frames that the failed one may have left in the WAL: they
   * cannot come true later.
   */
  #hasHappened(fsync: boolean): boolean | undefined {
    try {
      for (let attempt = 0; !this.#connection.begin(fsync, BUSY_SLICE_MS); attempt++) {
        if (attempt === VERIFY_ATTEMPTS) return undefined;
      }
      const happened = this.#record.look();
      this.#connection.commit();
      return happened;
    } catch (error) {
      this.#rollback(true);
      return this.#connection.space.relieves(error, []) ? this.#hasHappened(fsync) : undefined;
    }
  }
}

function apart(steps: readonly (Step | Joint)[]): readonly Step[] {
  return steps.flatMap((step) => step.parts ?? step);
}

function succeedAll(steps: readonly Step[]): void {
  for (const step of steps) step.succeed();
}

function failAll(steps: readonly Performable[], error: StorageError): void {
  for (const step of steps) step.fail(error);
}
