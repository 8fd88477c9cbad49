import { onAbort } from "../../abort.ts";
import { monotonicNow, queueMicrotask } from "../../timers.ts";
import type { Outlook } from "./claims.ts";
import { toStorageError } from "./failures.ts";
import { type Client, cut, query, type Row } from "./rows.ts";
import { firstPause, longer, pauseFor, type Runner, troubleOf } from "./runner.ts";
import type { Statements } from "./statements.ts";

/** How long whoever reads waits for a server that was there before. */
const PATIENCE_MS = 30_000;

interface Looking {
  readonly queue: string;
  readonly resolve: (outlook: Outlook) => void;
  readonly reject: (reason: unknown) => void;
}

/** What only reads. */
export class Looks {
  readonly #runner: Runner;
  readonly #sql: Statements;
  #waiting: Looking[] = [];
  #looking = false;

  constructor(runner: Runner, sql: Statements) {
    this.#runner = runner;
    this.#sql = sql;
  }

  /** With a `signal`, it may take as long as it likes: only that ends it. */
  async read(text: string, values: readonly unknown[], signal?: AbortSignal): Promise<Row[]> {
    const endsAt = monotonicNow() + PATIENCE_MS;
    for (let pause = firstPause(); ; pause = longer(pause)) {
      if (signal?.aborted) throw signal.reason;
      try {
        return await this.#runner.read(({ client }) =>
          signal === undefined ? query(client, text, values) : readUntil(signal, client, text, values),
        );
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!this.#runner.isTransient(troubleOf(error)) || monotonicNow() >= endsAt) {
          throw toStorageError(error, this.#runner.place);
        }
        await pauseFor(pause);
      }
    }
  }

  /** What there is to be claimed in a queue; those who ask while a look is under way share the next one. */
  at(queue: string): Promise<Outlook> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ queue, resolve, reject });
      if (this.#looking) return;
      this.#looking = true;
      queueMicrotask(() => void this.#look());
    });
  }

  async #look(): Promise<void> {
    while (this.#waiting.length > 0) {
      const waiting = this.#waiting.splice(0);
      const queues = [...new Set(waiting.map(({ queue }) => queue))];
      try {
        const rows = await this.#runner.read(({ client }) => query(client, this.#sql.look, [queues]));
        const outlooks = new Map(rows.map((row) => [row["queue"], outlookOf(row)]));
        for (const { queue, resolve } of waiting) resolve(outlooks.get(queue) as Outlook);
      } catch (error) {
        for (const { reject } of waiting) reject(error);
      }
    }
    this.#looking = false;
  }
}

async function readUntil(
  signal: AbortSignal,
  client: Client,
  text: string,
  values: readonly unknown[],
): Promise<Row[]> {
  const forget = onAbort(signal, () => cut(client));
  try {
    return await query(client, text, values, Number.POSITIVE_INFINITY);
  } finally {
    forget();
  }
}

function outlookOf(row: Row): Outlook {
  return {
    ready: row["ready"] as boolean,
    dueIn: (row["due_in"] as number | null) ?? Number.POSITIVE_INFINITY,
    endsIn: (row["ends_in"] as number | null) ?? Number.POSITIVE_INFINITY,
    now: row["now"] as number,
  };
}
