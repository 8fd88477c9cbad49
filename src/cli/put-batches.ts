import type { EnqueueItem } from "../index.ts";
import type { RawQueue } from "./queue-access.ts";

const BATCH_JOBS = 1_000;
const BATCH_BYTES = 1024 * 1024;
const BATCHES_UNDER_WAY = 2;
/** A job beyond this goes alone. */
const BYTES_UNDER_WAY = 64 * 1024 * 1024;

/** Checks the payload; throws a `Failure` that says what is wrong: "is not valid JSON". */
export type ItemMaker = (payload: Uint8Array) => EnqueueItem<Uint8Array>;

/** What became of the jobs that were put so far. */
export interface PutReport {
  /** Jobs that were added. */
  readonly put: number;
  /** Jobs whose jobId was known already. */
  readonly known: number;
  /** The lowest and the highest id that was added. */
  readonly firstId: number | null;
  readonly lastId: number | null;
}

/**
 * Puts jobs in batches. As long as fewer than two are under way, what was gathered goes as soon as the input pauses,
 * so that a slow producer's jobs do not wait for others; else it gathers, and at the size of a batch the producer waits.
 */
export class PutBatches {
  report: PutReport = { put: 0, known: 0, firstId: null, lastId: null };
  readonly #queue: RawQueue;
  readonly #onProgress: () => void;
  readonly #underWay = new Set<Promise<void>>();
  #bytesUnderWay = 0;
  #gathered: EnqueueItem<Uint8Array>[] = [];
  #bytes = 0;
  #fault: { readonly error: unknown } | undefined;

  constructor(queue: RawQueue, onProgress: () => void) {
    this.#queue = queue;
    this.#onProgress = onProgress;
  }

  /** Whether `flush` is due before more is added. */
  get isFull(): boolean {
    return this.#gathered.length >= BATCH_JOBS || this.#bytes >= BATCH_BYTES;
  }

  add(item: EnqueueItem<Uint8Array>): void {
    this.#gathered.push(item);
    this.#bytes += item.data.length;
  }

  /** Resolves when what was gathered is under way. Throws why an earlier batch could not be put. */
  async flush(): Promise<void> {
    this.send();
    while (this.#gathered.length > 0 && this.#fault === undefined) await Promise.race(this.#underWay);
    if (this.#fault !== undefined) throw this.#fault.error;
  }

  /** Sends what was gathered, if there is room for it. */
  send(): void {
    if (this.#gathered.length === 0 || !this.#hasRoom || this.#fault !== undefined) return;
    const [items, bytes] = [this.#gathered, this.#bytes];
    [this.#gathered, this.#bytes] = [[], 0];
    this.#bytesUnderWay += bytes;
    const batch = this.#put(items).finally(() => {
      this.#underWay.delete(batch);
      this.#bytesUnderWay -= bytes;
      this.send(); // the input may be waiting, too
    });
    this.#underWay.add(batch);
  }

  /** Resolves when all is committed; rejects when all is that can be. */
  async end(): Promise<void> {
    this.send();
    while (this.#underWay.size > 0) await Promise.race(this.#underWay);
    if (this.#fault !== undefined) throw this.#fault.error;
  }

  get #hasRoom(): boolean {
    if (this.#underWay.size === 0) return true;
    return this.#underWay.size < BATCHES_UNDER_WAY && this.#bytesUnderWay + this.#bytes <= BYTES_UNDER_WAY;
  }

  async #put(items: readonly EnqueueItem<Uint8Array>[]): Promise<void> {
    try {
      const results = await this.#queue.putMany(items);
      const added = results.filter(({ inserted }) => inserted).map(({ id }) => id);
      const { put, known, firstId, lastId } = this.report;
      this.report = {
        put: put + added.length,
        known: known + items.length - added.length,
        firstId: firstId ?? added[0] ?? null,
        lastId: added.at(-1) ?? lastId,
      };
      this.#onProgress();
    } catch (error) {
      this.#fault ??= { error };
    }
  }
}
