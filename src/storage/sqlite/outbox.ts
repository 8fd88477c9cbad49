import type { StorageError } from "../../errors.ts";
import type { Answer, DeliveryOnWire, ErrorOnWire, FromEngine, LeaseNews } from "./protocol.ts";
import type { ClaimedRow } from "./transitions.ts";

/** Gathers what is to be said to the client, and says it in one message. */
export class Outbox {
  readonly #post: (message: FromEngine, transfer: ArrayBuffer[]) => void;
  #answers: Answer[] = [];
  #news: LeaseNews[] = [];
  #payloads: Uint8Array[] = [];
  #bytes = 0;
  #batches = 0;
  #watch = false;

  constructor(post: (message: FromEngine, transfer: ArrayBuffer[]) => void) {
    this.#post = post;
  }

  answer(answer: Answer): void {
    this.#answers.push(answer);
  }

  fail(id: number, error: StorageError): void {
    this.#answers.push({ id, error: errorOnWire(error) });
  }

  deliver(id: number, rows: readonly ClaimedRow[]): void {
    const claimed = rows.map(({ payload, ...row }): DeliveryOnWire => {
      const offset = this.#bytes;
      this.#payloads.push(payload);
      this.#bytes += payload.byteLength;
      return { ...row, payload: { offset, length: payload.byteLength } };
    });
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

  flush(): void {
    if (this.#answers.length === 0 && this.#news.length === 0 && this.#batches === 0 && !this.#watch) return;
    const memory = this.#payloads.length > 0 ? concatenate(this.#payloads, this.#bytes) : undefined;
    const message = {
      kind: "reply",
      answers: this.#answers,
      news: this.#news,
      batches: this.#batches,
      watch: this.#watch,
    } as const;
    this.#answers = [];
    this.#news = [];
    this.#payloads = [];
    this.#bytes = 0;
    this.#batches = 0;
    this.#watch = false;
    if (memory === undefined) this.#post(message, []);
    else this.#post({ ...message, memory }, [memory]);
  }
}

function concatenate(parts: readonly Uint8Array[], bytes: number): ArrayBuffer {
  const whole = new Uint8Array(bytes);
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.byteLength;
  }
  return whole.buffer;
}

export function errorOnWire({ code, message, outcome, cause }: StorageError): ErrorOnWire {
  return {
    code,
    message,
    outcome,
    cause: cause instanceof Error ? { name: cause.name, message: cause.message } : undefined,
  };
}
