import type { StorageError } from "../../errors.ts";
import type { Outbox } from "./outbox.ts";
import type { NewJob, Origin, PutCommand } from "./protocol.ts";
import { lockedOut } from "./refusals.ts";
import { PutStep } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

/** A put into a queue that may hold only so many jobs. */
export interface LimitedPutCommand extends PutCommand {
  readonly origin: Origin & { readonly maxPending: number };
  waitMs: number;
}

/** Where puts wait for room, in the order in which they came. */
export interface Line {
  readonly now: () => number;
  /** Whether one waits that came before. */
  isBehind(put: LimitedPutStep): boolean;
  /** Whether it has to wait, as the transaction under way sees it, and with it those that came later. */
  hold(put: LimitedPutStep, waits: boolean): void;
  /** It has to wait, and that is final. */
  join(put: LimitedPutStep): void;
  /** It waits no longer. */
  leave(put: LimitedPutStep): void;
}

type Verdict = "put" | "waits" | "full" | "oversized" | "closed";

/** Puts if there is room; else waits for it in line. */
export class LimitedPutStep extends PutStep {
  declare readonly command: LimitedPutCommand;
  /** Its place among all. */
  readonly number: number;
  /** When to stop waiting for room, by `monotonicMs`. */
  readonly endsAt: number;
  readonly #line: Line;
  #mayWait: boolean;
  #waiting = false;
  /** Since when there is room, but the lock is somebody else's. */
  #lockedSince: number | undefined;
  #verdict: Verdict = "waits";

  constructor(command: LimitedPutCommand, number: number, now: number, outbox: Outbox, line: Line) {
    super(command, now + command.lockMs, outbox);
    this.number = number;
    this.endsAt = now + command.waitMs;
    this.#mayWait = command.waitMs >= 0;
    this.#line = line;
  }

  /** It looks for room first. */
  override get joinable(): boolean {
    return false;
  }

  get waiting(): boolean {
    return this.#waiting;
  }

  /** When to give up what it waits for. */
  get endsBy(): number {
    return this.#lockedSince === undefined
      ? this.endsAt
      : Math.min(this.endsAt, this.#lockedSince + this.command.lockMs);
  }

  override execute(transitions: Transitions): void {
    this.#verdict = this.#judge(transitions);
    this.#line.hold(this, this.#verdict === "waits");
    if (this.#verdict === "put") super.execute(transitions);
  }

  #judge(transitions: Transitions): Verdict {
    const { entries } = this.command;
    const { queue, maxPending } = this.command.origin;
    const room = this.#line.isBehind(this) ? 0 : Math.max(0, maxPending - transitions.load(queue));
    if (entries.length <= room) return "put";
    const rows = newRows(transitions, this.command, entries.length > maxPending ? maxPending : room);
    if (rows <= room) return "put";
    if (rows > maxPending) return "oversized";
    if (!this.#mayWait) return "closed";
    return this.endsAt > this.#line.now() ? "waits" : "full";
  }

  override succeed(): void {
    this.#lockedSince = undefined;
    if (this.#verdict === "waits") this.#join();
    else if (this.#verdict !== "put") this.refuse(this.#verdict);
    else {
      this.#leave();
      super.succeed();
    }
  }

  override fail(error: StorageError): void {
    this.#leave();
    super.fail(error);
  }

  refuse(refused: "aborted" | "closed" | "full" | "oversized"): void {
    this.#leave();
    this.outbox.answer({ id: this.command.id, refused });
  }

  #join(): void {
    if (this.#waiting) return;
    this.#waiting = true;
    this.#line.join(this);
  }

  #leave(): void {
    if (!this.#waiting) return;
    this.#waiting = false;
    this.#line.leave(this);
  }

  /** Its time is up. */
  giveUp(file: string): void {
    if (this.#lockedSince === undefined) this.refuse("full");
    else this.fail(lockedOut(file));
  }

  /** From now on it is put at its first attempt, or not at all. */
  hasten(): void {
    this.#mayWait = false;
  }

  markLocked(since: number): void {
    this.#lockedSince ??= since;
  }

  noLongerLocked(): void {
    this.#lockedSince = undefined;
  }
}

/** How many rows a put would add; counted up to one more than `most`. */
export function newRows(transitions: Transitions, { origin: { queue }, entries }: PutCommand, most: number): number {
  const ids = new Set<string>();
  let rows = 0;
  for (const { jobId } of entries as readonly NewJob[]) {
    if (jobId !== null) {
      if (ids.has(jobId) || transitions.knows(queue, jobId)) continue;
      ids.add(jobId);
    }
    rows++;
    if (rows > most) break;
  }
  return rows;
}
