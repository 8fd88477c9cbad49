import type { StorageError } from "../../errors.ts";
import type { FailedFilter, PurgeRequest } from "../storage.ts";
import type { Step } from "./group-commit.ts";
import type { Outbox } from "./outbox.ts";
import type { SweepCommand } from "./protocol.ts";
import { lockedOut } from "./refusals.ts";
import { RetentionPasses, type RetentionPassesOptions } from "./retention.ts";
import type { Stretch, Transitions } from "./transitions.ts";
import { type Path, type Visit, Walk } from "./walk.ts";

/** How long a slice lets others go first who ask at the same time. */
const COURTESY_MS = 5;
/** How many times as long as it was held the lock is left free after a slice: whoever waits for it polls for it. */
const GAP = { alone: 1, contended: 3 } as const;

export interface SweepsOptions extends RetentionPassesOptions {
  readonly outbox: Outbox;
  /** Told when jobs became ready. */
  readonly replayed: () => void;
}

/** A sweep that somebody waits for. */
interface Task {
  readonly command: SweepCommand;
  readonly walk: Walk;
  /** Set while the lock cannot be had: when to give up. */
  lockEndsAt: number | undefined;
}

/** Work on many rows, in slices: what callers asked for, in turns, and retention when there is none of that. */
export class Sweeps {
  readonly #options: SweepsOptions;
  readonly #retention: RetentionPasses;
  #tasks: Task[] = [];
  #dueAt = 0;

  constructor(options: SweepsOptions) {
    this.#options = options;
    this.#retention = new RetentionPasses(options);
  }

  /** When there is something to do, by the monotonic clock. */
  get nextAt(): number {
    return this.#tasks.length > 0 ? this.#dueAt : this.#retention.nextAt;
  }

  add(command: SweepCommand): void {
    this.#tasks.push({ command, walk: new Walk(pathsOf(command)), lockEndsAt: undefined });
  }

  /** A consumer has come, perhaps with finished jobs to be removed. */
  consumerCame(): void {
    this.#retention.consumerCame();
  }

  /** The next slice if it is time. `others` = callers' steps are waiting: they go first, but not for ever. */
  nextStep(now: number, others: boolean): Step | undefined {
    const [task] = this.#tasks;
    if (task === undefined) return this.#retention.nextStep(now, others);
    if (now < this.#dueAt + (others ? COURTESY_MS : 0)) return undefined;
    return task.walk.slice(task.command.origin.fsync, (error) => this.#sliced(task, error));
  }

  /** The slice that was handed out last could not begin: somebody else holds the lock. */
  locked(since: number, now: number): void {
    if (this.#tasks.length === 0) this.#retention.locked(now);
    for (const task of this.#tasks.slice()) {
      task.lockEndsAt ??= since + task.command.lockMs;
      if (task.lockEndsAt <= now) this.#fail(task, lockedOut(this.#options.connection.file));
    }
  }

  closeSession(session: number): void {
    for (const { command } of this.#tasks) {
      if (command.origin.session === session) this.#options.outbox.answer({ id: command.id, refused: "closed" });
    }
    this.#tasks = this.#tasks.filter(({ command }) => command.origin.session !== session);
  }

  failAll(error: StorageError): void {
    for (const task of this.#tasks.slice()) this.#fail(task, error);
  }

  #sliced(task: Task, error: StorageError | undefined): void {
    if (error !== undefined) {
      this.#fail(task, error);
      return;
    }
    const { connection, monotonic, neighbours, outbox, replayed } = this.#options;
    const { command, walk } = task;
    const now = monotonic();
    this.#dueAt = now + connection.heldMs * (neighbours.active(now) ? GAP.contended : GAP.alone);
    for (const each of this.#tasks) each.lockEndsAt = undefined;
    this.#remove(task);
    if (command.sweep.kind === "retryFailed") replayed();
    if (!walk.over) this.#tasks.push(task);
    else if (walk.full && walk.changed === 0) outbox.answer({ id: command.id, refused: "full" });
    else outbox.answer({ id: command.id, changed: walk.changed });
  }

  #fail(task: Task, error: StorageError): void {
    this.#remove(task);
    this.#options.outbox.fail(task.command.id, error);
  }

  #remove(task: Task): void {
    this.#tasks = this.#tasks.filter((other) => other !== task);
  }
}

function pathsOf({ origin: { queue, maxPending }, sweep }: SweepCommand): Path[] {
  switch (sweep.kind) {
    case "purge":
      return purgePaths(queue, sweep);
    case "purgeFailed":
      return [
        { failedOf: queue, visit: (transitions, at) => ({ changed: transitions.purgeFailed(queue, at, sweep) }) },
      ];
    case "retryFailed":
      return [{ failedOf: queue, visit: (transitions, at) => replay(transitions, at, queue, sweep, maxPending) }];
  }
}

function purgePaths(queue: string, { olderThanMs, includeFailed }: PurgeRequest): Path[] {
  let cutOff: number | undefined;
  const before = (transitions: Transitions): number => (cutOff ??= transitions.now() - olderThanMs);
  const acked: Path = {
    visit: (transitions, at) => ({ changed: transitions.purgeAcked(queue, at, before(transitions)) }),
  };
  const failed: Path = {
    failedOf: queue,
    visit: (transitions, at) => ({ changed: transitions.purgeFailed(queue, at, { before: before(transitions) }) }),
  };
  return includeFailed ? [acked, failed] : [acked];
}

function replay(
  transitions: Transitions,
  at: Stretch,
  queue: string,
  filter: FailedFilter,
  maxPending: number | undefined,
): Visit {
  const now = transitions.now();
  let changed = 0;
  for (const id of transitions.failedIn(queue, at, filter)) {
    if (maxPending !== undefined && !transitions.hasRoom(queue, maxPending, 1)) {
      return { changed, over: "full" };
    }
    if (transitions.replay(queue, id, now)) changed++;
  }
  return { changed };
}
