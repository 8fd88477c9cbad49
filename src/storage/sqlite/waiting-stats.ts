import type { StorageError } from "../../errors.ts";
import { BUSY_SLICE_MS, type Connection } from "./connection.ts";
import type { GroupCommit } from "./group-commit.ts";
import type { Outbox } from "./outbox.ts";
import type { StatsCommand } from "./protocol.ts";
import { lockedOut } from "./refusals.ts";
import { nothing } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

export interface WaitingStatsOptions {
  readonly connection: Connection;
  readonly transitions: Transitions;
  readonly groupCommit: GroupCommit;
  readonly outbox: Outbox;
  readonly monotonic: () => number;
}

/** Those who ask for the counts: they wait only where these must be made anew. */
export class WaitingStats {
  readonly #options: WaitingStatsOptions;
  #asked: { readonly command: StatsCommand; lockEndsAt: number }[] = [];

  constructor(options: WaitingStatsOptions) {
    this.#options = options;
  }

  get any(): boolean {
    return this.#asked.length > 0;
  }

  add(command: StatsCommand, now: number): void {
    this.#asked.push({ command, lockEndsAt: now + command.lockMs });
  }

  /** Nobody of this session waits beyond `latest`. */
  hurry(session: number, latest: number): void {
    for (const asked of this.#asked) {
      if (asked.command.origin.session === session) asked.lockEndsAt = Math.min(asked.lockEndsAt, latest);
    }
  }

  answer(): void {
    const { connection, transitions, groupCommit, outbox } = this.#options;
    // A Python client has opened the file since: the counts must be made anew, which takes a transaction.
    if (connection.layoutChanged() && groupCommit.run([nothing], BUSY_SLICE_MS).length > 0) {
      const now = this.#options.monotonic();
      const late = this.#asked.filter(({ lockEndsAt }) => lockEndsAt <= now);
      for (const { command } of late) outbox.fail(command.id, lockedOut(connection.file));
      this.#asked = this.#asked.filter(({ lockEndsAt }) => lockEndsAt > now);
      return;
    }
    for (let next = this.#asked[0]; next !== undefined; next = this.#asked[0]) {
      outbox.answer({ id: next.command.id, stats: transitions.stats(next.command.origin.queue) });
      this.#asked.shift();
    }
  }

  failAll(error: StorageError): void {
    for (const { command } of this.#asked.splice(0)) this.#options.outbox.fail(command.id, error);
  }
}
