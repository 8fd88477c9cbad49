import type { StorageError } from "../../errors.ts";
import { shareOf } from "./claims.ts";
import type { Connection } from "./connection.ts";
import type { Step } from "./group-commit.ts";
import { type LimitedPutCommand, LimitedPutStep, type Line, newRows } from "./limited-put.ts";
import type { Outbox } from "./outbox.ts";
import type { Pending } from "./pending.ts";
import type { PutCommand } from "./protocol.ts";
import { RoomLine } from "./room-line.ts";
import type { CommandStep } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

export interface RoomOptions {
  readonly connection: Connection;
  readonly transitions: Transitions;
  readonly outbox: Outbox;
  readonly monotonic: () => number;
}

/**
 * The puts that wait for room. A put is tried once among the other commands; if there is no room it joins a line here,
 * and its client's batch goes on without it. Lines are served from the front, up to the first that has to wait on.
 */
export class Room implements Line {
  readonly now: () => number;
  readonly #connection: Connection;
  readonly #transitions: Transitions;
  readonly #outbox: Outbox;
  readonly #lines = new Map<string, RoomLine>();
  /** Those who wait, by the numbers of their commands. */
  readonly #waiting: (LimitedPutStep | undefined)[] = [];
  #puts = 0;

  constructor({ connection, transitions, outbox, monotonic }: RoomOptions) {
    this.#connection = connection;
    this.#transitions = transitions;
    this.#outbox = outbox;
    this.now = monotonic;
  }

  stepOf(command: PutCommand, now: number): LimitedPutStep {
    return new LimitedPutStep(command as LimitedPutCommand, ++this.#puts, now, this.#outbox, this);
  }

  get hasWaiters(): boolean {
    return this.#lines.size > 0;
  }

  /** Whether there may be room for somebody who waits. */
  get toDo(): boolean {
    for (const { check } of this.#lines.values()) if (check) return true;
    return false;
  }

  /** When the next one's time may be up. */
  get nextEnd(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const { nextEnd } of this.#lines.values()) next = Math.min(next, nextEnd);
    return next;
  }

  isBehind(put: LimitedPutStep): boolean {
    if (this.#lines.size === 0) return false;
    const line = this.#lines.get(keyOf(put));
    if (line === undefined) return false;
    return (!put.waiting && line.size > 0) || (line.holding !== undefined && line.holding.number < put.number);
  }

  hold(put: LimitedPutStep, waits: boolean): void {
    if (waits) this.#lineOf(put).hold(put);
    else if (this.#lines.size > 0) this.#lines.get(keyOf(put))?.release(put);
  }

  join(put: LimitedPutStep): void {
    this.#lineOf(put).add(put);
    this.#waiting[put.command.id] = put;
  }

  leave(put: LimitedPutStep): void {
    const line = this.#lineOf(put);
    line.left();
    if (line.size === 0) this.#lines.delete(keyOf(put));
    this.#waiting[put.command.id] = undefined;
  }

  #lineOf(put: LimitedPutStep): RoomLine {
    const { origin } = put.command;
    const key = keyOf(put);
    let line = this.#lines.get(key);
    if (line === undefined) {
      line = new RoomLine(origin.queue, origin.maxPending);
      this.#lines.set(key, line);
    }
    return line;
  }

  checkAll(): void {
    for (const line of this.#lines.values()) line.check = true;
  }

  /** Those for whom there may be room, now or after the batch of `taken`: each of its settlements may make some. */
  steps(taken: readonly Pending[]): LimitedPutStep[] {
    const steps: LimitedPutStep[] = [];
    for (const line of this.#lines.values()) {
      const settled = taken.filter(
        ({ step: { command } }) => command.op === "settle" && command.origin.queue === line.queue,
      );
      const most = settled.length + (line.check ? this.#look(line) : 0);
      if (most > 0) steps.push(...line.take(Math.min(most, shareOf(line.size, this.#connection.commitMs))));
    }
    return steps;
  }

  /** How many there may be room for. Reads only: nobody takes the lock in vain. */
  #look(line: RoomLine): number {
    const { first } = line;
    if (first === undefined) return 0;
    try {
      // The next transaction makes the counts anew.
      if (this.#connection.layoutChanged()) return 1;
      const { ready, processing } = this.#transitions.stats(line.queue);
      const room = Math.max(0, line.limit - ready - processing);
      if (newRows(this.#transitions, first.command, room) <= room) return Math.max(1, room);
      line.noRoom();
      return 0;
    } catch {
      // The transaction meets the same fault, and reports it.
      return 1;
    }
  }

  /** After each batch; `locked` are the steps that could not begin. */
  batchEnded(locked: ReadonlySet<Step>, since: number): void {
    for (const [key, line] of this.#lines) {
      line.batchEnded(locked, since);
      if (line.size === 0) this.#lines.delete(key);
    }
  }

  /** Tells those whose time is up. */
  endWaits(now: number): void {
    for (const line of this.#lines.values()) {
      for (const put of line.ended(now)) put.giveUp(this.#connection.file);
    }
  }

  withdraw(id: number): void {
    this.#waiting[id]?.refuse("aborted");
  }

  /** Ends the waits of a session that closes; `pending` are its commands that were not tried yet. */
  stopWaiting(session: number, pending: readonly CommandStep[]): void {
    for (const step of pending) if (step instanceof LimitedPutStep) step.hasten();
    for (const put of this.#all()) if (put.command.origin.session === session) put.refuse("closed");
  }

  failAll(error: StorageError): void {
    for (const put of this.#all()) put.fail(error);
    this.#lines.clear();
  }

  #all(): LimitedPutStep[] {
    return [...this.#lines.values()].flatMap((line) => line.waiting());
  }
}

function keyOf({
  command: {
    origin: { queue, maxPending },
  },
}: LimitedPutStep): string {
  return `${maxPending} ${queue}`;
}
