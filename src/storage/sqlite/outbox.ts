import type { StorageError } from "../../errors.ts";
import type { ConflictOnWire } from "../refusals.ts";
import type { LeaseNews } from "../slot-consumer.ts";
import type { Delivery } from "../storage.ts";
import type { Answer, ErrorOnWire, FromEngine } from "./protocol.ts";

/** Gathers what is to be said to the client, and says it in one message. */
export class Outbox {
  readonly #post: (message: FromEngine) => void;
  #answers: Answer[] = [];
  #news: LeaseNews[] = [];
  #batches = 0;
  #watch = false;
  #moveLog = false;

  constructor(post: (message: FromEngine) => void) {
    this.#post = post;
  }

  answer(answer: Answer): void {
    this.#answers.push(answer);
  }

  fail(id: number, error: StorageError): void {
    this.#answers.push({ id, error: errorOnWire(error) });
  }

  conflict(id: number, { jobId, queue }: ConflictOnWire): void {
    this.#answers.push({ id, conflict: { jobId, queue } });
  }

  deliver(id: number, claimed: Delivery[]): void {
    this.#answers.push({ id, claimed });
  }

  tell(news: LeaseNews): void {
    this.#news.push(news);
  }

  batchDone(): void {
    this.#batches++;
  }

  askForWatch(): void {
    this.#watch = true;
  }

  askToMoveLog(): void {
    this.#moveLog = true;
  }

  flush(): void {
    const asks = this.#watch || this.#moveLog;
    if (this.#answers.length === 0 && this.#news.length === 0 && this.#batches === 0 && !asks) return;
    const message: FromEngine = {
      kind: "reply",
      answers: this.#answers,
      news: this.#news,
      batches: this.#batches,
      watch: this.#watch,
      moveLog: this.#moveLog,
    };
    this.#answers = [];
    this.#news = [];
    this.#batches = 0;
    this.#watch = false;
    this.#moveLog = false;
    this.#post(message);
  }
}

export function errorOnWire({ code, message, outcome, cause }: StorageError): ErrorOnWire {
  return {
    code,
    message,
    outcome,
    cause: cause instanceof Error ? { name: cause.name, message: cause.message } : undefined,
  };
}
